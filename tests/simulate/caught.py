"""Which history catches which mutant: recorded in `caught.json`, so that no test has to search for it.

The first `events` events of `seed`, with errors of the operator's own for a mutant of `GUARDS`, break a rule if the
operator is the mutant, and none if it is not. `violation` is what the checker said when that was recorded: for who
reads the diff.
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
    """A history that shows what a mutant gets wrong."""

    seed: int
    events: int
    violation: str
    vague: bool = False
    """It is only seen that the cluster does not come to rest."""


def read_catches() -> dict[str, Catch]:
    """What is recorded, by the mutants' names."""
    return {mutant: Catch(**fields) for mutant, fields in json.loads(FILE.read_text()).items()}


def write_catches(catches: Mapping[str, Catch]) -> None:
    """Record them, in the order of the mutants."""
    told = {mutant: asdict(catches[mutant]) for mutant in MUTANTS if mutant in catches}
    FILE.write_text(json.dumps(told, indent=1) + "\n")


def lived_by(mutant: str, seed: int, events: int) -> Catch | None:
    """How the history shows that the operator is this mutant; None if it does not, in so many events."""
    told: list[str] = []
    try:
        with MUTANTS[mutant]():
            run_history(seed, events, told=told, with_errors=mutant in GUARDS)
    except ViolationError as violation:
        return Catch(seed, len(told) - len(BEGINNING), str(violation), vague=isinstance(violation, RestlessError))
    return None
