"""Many pods at rest: what `make bench-scale ARGS="--rest 10000"` fills the cluster with, and what it tells."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.live.errors import BenchError
from benchmarks.react.weigh import Rest
from benchmarks.scale import rest_report
from benchmarks.scale.rest import Plan, Resting
from devcluster.fakenodes import CAPACITY

RESTING = Resting(
    plan=Plan(pods=400, others=1000),
    leader=Rest("a", cpu_percent=1.25, resident_megabytes=150.0, passes=3.0),
    standby=Rest("b", cpu_percent=0.5, resident_megabytes=140.0, passes=0.0),
    killed_s=3.0,
    stopped_s=1.0,
    start_s=2.0,
    start_cpu_s=1.5,
    fresh_megabytes=120.0,
    load=0.5,
)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pods": 400, "size": 1}, "size=1: write at least 2"),
        ({"pods": 402}, "rest=402: write a multiple of size=4"),
        ({"pods": 8}, "rest=8: .* at least 3 times it"),
        ({"pods": 400, "others": -1}, "others=-1: write 0 or more"),
    ],
)
def test_a_plan_that_cannot_be_measured_is_refused(wrong, message):
    with pytest.raises(BenchError, match=message):
        Plan(**wrong)


@pytest.mark.parametrize(("pods", "others"), [(400, 0), (400, 4000), (10_000, 30_000)])
def test_the_nodes_have_room_for_all_pods_and_those_of_others_are_spread(pods, others):
    plan = Plan(pods, others)
    on_node = Counter(plan.other(number)["spec"]["nodeName"] for number in range(others))
    assert set(on_node) <= {f"k{number}" for number in range(1, plan.nodes + 1)}
    assert max(on_node.values(), default=0) + 8 <= int(CAPACITY["pods"])
    assert plan.nodes * 8 >= pods
    assert len(plan.names) * plan.size == pods


def test_the_last_line_has_what_was_measured():
    told = json.loads(rest_report.line(RESTING))
    assert (told["pods"], told["jobs"], told["others"]) == (400, 100, 1000)
    assert (told["rss_mb_rest"], told["rss_mb_standby"], told["rss_mb_started"]) == (150.0, 140.0, 120.0)
    assert (told["cpu_percent_rest"], told["start_s_rest"], told["start_cpu_s_rest"]) == (1.25, 2.0, 1.5)
    assert (told["takeover_s_rest"], told["takeover_after_stop_s_rest"]) == (3.0, 1.0)


def test_only_the_figures_at_rest_are_renewed_on_the_page(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{rest_report.RENEWED_BY}\n\nold\n<!-- end of the figures -->\nafter\n")
    rest_report.show(RESTING, page)
    text = page.read_text()
    assert (text.splitlines()[0], text.splitlines()[-1]) == ("before", "after")
    assert "old" not in text
    assert "| memory of the leader" in text
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["others"] == 1000
