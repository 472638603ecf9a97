"""Mutation tests: for each mutant, the scenario or history that `caught` names breaks a rule."""

from __future__ import annotations

import pytest

from tests.virtual.caught import CAUGHT_BY, RENEW, breaks, read_seeds, run_unbroken
from tests.virtual.mutants import MUTANTS

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("mutant", MUTANTS)
def test_an_operator_that_breaks_this_rule_is_caught_and_only_the_broken_one(mutant: str) -> None:
    seed = read_seeds()[mutant]
    assert breaks(mutant, seed), f"seed {seed} does not show any more that {mutant}: {RENEW}"
    run_unbroken(mutant, seed)


def test_each_rule_that_an_operator_breaks_has_its_story() -> None:
    assert CAUGHT_BY.keys() == MUTANTS.keys() == read_seeds().keys()
