"""Mutation tests: for each mutant, the scenario or history that `caught` names breaks a rule."""

from __future__ import annotations

import pytest

from tests.virtual.caught import CAUGHT_BY, RENEW, breaks, read_seeds, run_unbroken
from tests.virtual.mutants import MUTANTS

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_breaks_a_rule_and_the_operator_does_not(mutant: str) -> None:
    seed = read_seeds()[mutant]
    assert breaks(mutant, seed), f"seed {seed} does not show any more that {mutant}: {RENEW}"
    run_unbroken(mutant, seed)


def test_each_mutant_has_a_scenario_and_a_seed() -> None:
    assert CAUGHT_BY.keys() == MUTANTS.keys() == read_seeds().keys()
