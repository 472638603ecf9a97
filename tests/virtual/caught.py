"""The recorded seeds of the mutants, in `caught.json`. One more request makes another run of the same seed.

python -m tests.virtual.caught      keeps each record that still holds, and searches for a seed for the others
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from multiprocessing import Pool
from pathlib import Path

from tests.simulate.violation import ViolationError
from tests.virtual import test_outages, test_replicas
from tests.virtual.history import run_history
from tests.virtual.mutants import MUTANTS
from tests.virtual.scenario import run_scenario

FILE = Path(__file__).with_name("caught.json")
RENEW = "uv run python -m tests.virtual.caught"
MOST_SEEDS = 200

_SCENARIOS = {**test_replicas.SCENARIOS, **test_outages.SCENARIOS}
_DELETED_LEASE = "a lease that somebody deletes is made again by who leads"
_HANDED_OVER = "a leader that is stopped hands over before its lease ends"
_THAWED = "a frozen leader writes nothing when it is thawed"
_KILLED = "when the leader is killed the other goes on"
CAUGHT_BY: dict[str, str] = {
    "a leader counts its time from the answer, and for longer than others wait": (
        "a leader that hears nothing stops before anybody may take over"
    ),
    "a lease is taken whoever holds it": _KILLED,
    "a lease that somebody deleted is free": _DELETED_LEASE,
    "a leader does not look at its lease again": _HANDED_OVER,
    "a lease is not handed back": _HANDED_OVER,
    "who is stuck keeps its lease": "a leader whose loop does not go on is followed",
    "writes are not fenced": _THAWED,
    "a leader begins with what it knows": _THAWED,
    "after 410 nothing is listed": "deletions come before an expired watch",
    "what a list does not have stays": "the API server is away for 40 seconds",
    "late news bring back what was deleted": "an API server takes two seconds",
    "a silent watch is waited for": "watches are silent",
    "jobs that kopf does not tell of are not looked for": "watches are silent",
    "kopf is not started again": _KILLED,
    "a pod whose making was not answered was not made": (
        "two jobs ask for one place while nobody hears whether the first has it"
    ),
    "pods of a job that is gone stay its own": "",
    "stores that are old are trusted": "a job is to grow while nothing is heard of nodes",
}
"""The scenario that catches the mutant; "" for a random history."""


def read_seeds() -> dict[str, int]:
    """The recorded seeds, by the mutants' names."""
    seeds: dict[str, int] = json.loads(FILE.read_text())
    return seeds


def breaks(mutant: str, seed: int) -> bool:
    """Whether the mutant breaks a rule with that seed."""
    try:
        with MUTANTS[mutant]():
            run_unbroken(mutant, seed)
    except ViolationError:
        return True
    return False


def run_unbroken(mutant: str, seed: int) -> None:
    """Run the mutant's scenario with the operator as it is. Raises ViolationError."""
    name = CAUGHT_BY[mutant]
    if name:
        run_scenario(_SCENARIOS[name], seed)
    else:
        run_history(seed)


def _renewed(mutant: str, known: Mapping[str, int]) -> int | None:
    """The recorded seed if it still catches the mutant, else the first that does."""
    recorded = [known[mutant]] if mutant in known else []
    for seed in (*recorded, *range(MOST_SEEDS)):
        if breaks(mutant, seed):
            run_unbroken(mutant, seed)
            return seed
    return None


def main() -> int:
    """Record all; the exit status says whether each mutant is caught."""
    known = read_seeds()
    with Pool() as pool:
        found = pool.starmap(_renewed, [(mutant, known) for mutant in MUTANTS], chunksize=1)
    seeds = {mutant: seed for mutant, seed in zip(MUTANTS, found, strict=True) if seed is not None}
    FILE.write_text(json.dumps(seeds, indent=1) + "\n")
    for mutant in MUTANTS:
        print(f"{mutant}: {f'seed {seeds[mutant]}' if mutant in seeds else 'NO SEED SHOWS IT'}")
    return 0 if len(seeds) == len(MUTANTS) else 1


if __name__ == "__main__":
    sys.exit(main())
