"""The recorded seeds of the mutants, in `caught.json`, so that no test has to search for one.

With a recorded mutant, the first `events` events of the history of `seed` break a rule. With the operator as it is,
they break none. For a mutant of `GUARDS`, the operator has internal errors as well. `violation` is the checker's
message at the time of the record, for readers of a diff.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulate.history import BEGINNING, run_history
from tests.simulate.mutants import GUARDS, MUTANTS
from tests.simulate.violation import RestlessError, ViolationError

FILE = Path(__file__).with_name("caught.json")
RENEW = "uv run python -m tests.simulate.renew_seeds"


@dataclass(frozen=True, slots=True)
class Catch:
    """A history that catches a mutant."""

    seed: int
    events: int
    violation: str
    vague: bool = False
    """The only violation is that the cluster does not come to rest."""


def read_catches() -> dict[str, Catch]:
    """The records, by the names of the mutants."""
    return {mutant: Catch(**fields) for mutant, fields in json.loads(FILE.read_text()).items()}


def write_catches(catches: Mapping[str, Catch]) -> None:
    """Write the records, in the order of the mutants."""
    trace = {mutant: asdict(catches[mutant]) for mutant in MUTANTS if mutant in catches}
    FILE.write_text(json.dumps(trace, indent=1) + "\n")


def find_violation(mutant: str, seed: int, events: int) -> Catch | None:
    """The violation of the mutant in the first `events` events of the history; None if there is none."""
    trace: list[str] = []
    try:
        with MUTANTS[mutant]():
            run_history(seed, events, trace=trace, with_errors=mutant in GUARDS)
    except ViolationError as violation:
        return Catch(seed, len(trace) - len(BEGINNING), str(violation), vague=isinstance(violation, RestlessError))
    return None
