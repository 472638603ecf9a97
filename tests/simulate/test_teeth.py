"""The histories would notice: an operator that breaks one rule is caught by one of them at least."""

from __future__ import annotations

import pytest

from tests.simulate.history import run_history
from tests.simulate.mutants import MUTANTS
from tests.simulate.test_histories import KNOWN, SEEDS

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("rule", MUTANTS)
def test_an_operator_that_breaks_this_rule_is_caught(rule):
    with MUTANTS[rule]():
        seed = next(filter(_goes_wrong, (seed for seed in SEEDS if seed not in KNOWN)), None)
    assert seed is not None, f"no history notices that {rule}"
    run_history(seed)  # and only the broken one goes wrong


def _goes_wrong(seed: int) -> bool:
    try:
        run_history(seed)
    except AssertionError:
        return True
    return False
