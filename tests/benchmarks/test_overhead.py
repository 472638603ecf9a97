"""What the benchmark makes of pairs of runs; and once the whole of it, small."""

from __future__ import annotations

import pytest

from benchmarks.overhead import figures
from benchmarks.overhead.__main__ import summary
from benchmarks.overhead.figures import Pair, Run
from benchmarks.overhead.runs import Runner


def make_pairs(*ratios, plain=0.01):
    """Each pair at another load: both of its runs are slower alike."""
    loads = [1 + number for number in range(len(ratios))]
    return [
        Pair(Run(plain * n, 0.01, 0.02), Run(plain * n * ratio, 0.011, 0.03))
        for n, ratio in zip(loads, ratios, strict=True)
    ]


def test_a_load_that_meets_both_runs_of_a_pair_does_not_count():
    ratio = figures.steps(make_pairs(1.02, 1.02, 1.02))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.02, 1.02, 1.02))


def test_the_interval_holds_the_median_and_grows_with_the_scatter():
    narrow = figures.ratio([1.00, 1.01, 1.02, 1.03, 1.04])
    wide = figures.ratio([0.80, 0.95, 1.02, 1.10, 1.30])
    assert narrow.value == wide.value == 1.02
    assert 0.80 <= wide.low < narrow.low < 1.02 < narrow.high < wide.high <= 1.30


def test_one_disturbed_pair_among_many_moves_nothing():
    calm = figures.ratio([1.0, 1.01] * 10)
    disturbed = figures.ratio([1.0, 1.01] * 9 + [1.0, 9.0])
    assert calm.high == disturbed.high == 1.01


def test_the_same_pairs_give_the_same_interval():
    scattered = [1 + number % 7 / 100 for number in range(20)]
    assert figures.ratio(scattered) == figures.ratio(scattered)


def test_cpu_time_and_the_fastest_steps_have_ratios_of_their_own():
    assert figures.fast(make_pairs(1.0, 1.0)).value == pytest.approx(1.1)
    assert figures.cpu(make_pairs(1.0, 1.0)).value == pytest.approx(1.5)


def test_the_line_has_what_the_benchmark_is_judged_by():
    told = summary(make_pairs(1.01, 1.02, 1.03), 42.123)
    assert told == {"overhead_ratio": 1.02, "overhead_hi": 1.03, "commit_us": 42.1}


@pytest.mark.extended
@pytest.mark.programs
@pytest.mark.timeout(240)
def test_a_pair_trains_with_and_without_the_library(tmp_path):
    runner = Runner(tmp_path, steps=5, warm_up=2)
    pair = runner.pair(1)
    assert pair.plain.step > 0
    assert pair.library.step > 0
    assert pair.library.cpu > 0
    assert runner.commit_us(2) > 0
