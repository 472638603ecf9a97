"""Mutation tests: for each mutant, a recorded history breaks a rule."""

from __future__ import annotations

import pytest

from tests.simulate.caught import RENEW, find_violation, read_catches
from tests.simulate.history import run_history
from tests.simulate.mutants import GUARDS, MUTANTS

CATCHES = read_catches()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_breaks_a_rule_and_the_operator_does_not(mutant):
    assert mutant in CATCHES, f"no history is recorded that catches it: {RENEW}"
    seed, events = CATCHES[mutant].seed, CATCHES[mutant].events
    run_history(seed, events, with_errors=mutant in GUARDS)
    assert find_violation(mutant, seed, events), f"seed {seed} does not show any more that {mutant}: {RENEW}"


def test_records_belong_to_existing_mutants():
    assert CATCHES.keys() <= MUTANTS.keys(), f"recorded of what is no mutant: {RENEW}"
