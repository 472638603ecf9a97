"""Records a history for each mutant, and drops the records of deleted mutants.

A record that still holds stays. For all other mutants, and with `--all` for each, it searches for a history that
catches the mutant within few events.
"""

from __future__ import annotations

import sys
from multiprocessing import Pool

from tests.simulate.caught import Catch, find_violation, read_catches, write_catches
from tests.simulate.history import EVENTS, run_history
from tests.simulate.mutants import GUARDS, MUTANTS
from tests.simulate.test_histories import SEEDS
from tests.simulate.violation import ViolationError

MORE = 40
"""Seeds after the first that catches a mutant, of which one may do so better."""


def search(mutant: str) -> Catch | None:
    """The best catch among those that come first."""
    best: Catch | None = None
    last = SEEDS.stop
    for seed in SEEDS:
        if seed > last:
            break
        most = best.events - 1 if best and not best.vague else EVENTS
        catch = shown_by(mutant, seed, most) if most else None
        if catch and (best is None or (catch.vague, catch.events) < (best.vague, best.events)):
            last = last if best else seed + MORE
            best = catch
    return best


def shown_by(mutant: str, seed: int, events: int) -> Catch | None:
    """How that history shows the mutant; None if it does not, or if an operator that is not broken fails in it too.

    Nor does one show anything in which the mutant breaks the world itself: that nobody took for a rule that is broken.
    """
    try:
        catch = find_violation(mutant, seed, events)
    except Exception:  # noqa: BLE001 - whatever the mutant breaks in the world, the search goes on
        return None
    try:
        if catch is not None:
            run_history(seed, catch.events, with_errors=mutant in GUARDS)
    except ViolationError:
        return None
    return catch


def renewed(mutant: str) -> Catch | None:
    """What is recorded of the mutant if it still holds, else another catch."""
    known = read_catches().get(mutant)
    return (known and shown_by(mutant, known.seed, known.events)) or search(mutant)


def main(*, anew: bool) -> int:
    """Record all; the exit status says whether each mutant is caught. The diff is for a person to read."""
    with Pool() as pool:
        found = pool.map(search if anew else renewed, MUTANTS, chunksize=1)
    catches = {mutant: catch for mutant, catch in zip(MUTANTS, found, strict=True) if catch}
    write_catches(catches)
    for mutant in MUTANTS:
        catch = catches.get(mutant)
        result = f"{catch.events} events of seed {catch.seed}: {catch.violation}" if catch else "NO HISTORY SHOWS IT"
        print(f"{mutant}: {result}")
    return 0 if len(catches) == len(MUTANTS) else 1


if __name__ == "__main__":
    sys.exit(main(anew="--all" in sys.argv[1:]))
