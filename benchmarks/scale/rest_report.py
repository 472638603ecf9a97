"""The figures of many pods at rest, for the page, and as one line of JSON for programs."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.scale.report import table
from benchmarks.scale.rest import REST_SECONDS, Resting
from benchmarks.torch.report import renew

RENEWED_BY = '<!-- figures: make bench-scale ARGS="--rest 10000 --page docs/performance.md" -->'


def show(resting: Resting, page: Path | None) -> None:
    """Print them; the table is put into the page, too, if there is one."""
    told = markdown(resting)
    if page:
        renew(page, told, begin=RENEWED_BY)
    print(told)
    print(line(resting), flush=True)


def line(resting: Resting) -> str:
    """What was measured, in megabytes, seconds, and percent of one core."""
    told = {
        "pods": resting.plan.pods,
        "jobs": len(resting.plan.names),
        "others": resting.plan.others,
        "nodes": resting.plan.nodes,
        "rss_mb_rest": round(resting.leader.resident_megabytes, 1),
        "rss_mb_standby": round(resting.standby.resident_megabytes, 1),
        "rss_mb_started": round(resting.fresh_megabytes, 1),
        "cpu_percent_rest": round(resting.leader.cpu_percent, 2),
        "cpu_percent_standby": round(resting.standby.cpu_percent, 2),
        "start_s_rest": round(resting.start_s, 2),
        "start_cpu_s_rest": round(resting.start_cpu_s, 2),
        "takeover_s_rest": round(resting.killed_s, 2),
        "takeover_after_stop_s_rest": round(resting.stopped_s, 2),
        "load": round(resting.load, 2),
    }
    return json.dumps(told)


def markdown(resting: Resting) -> str:
    """The table of the page."""
    plan, leader, standby = resting.plan, resting.leader, resting.standby
    rows = [
        ("memory of the leader", f"{leader.resident_megabytes:.0f} MB"),
        ("of the standby", f"{standby.resident_megabytes:.0f} MB"),
        ("of an operator that has just started", f"{resting.fresh_megabytes:.0f} MB"),
        (f"CPU of the leader, over {REST_SECONDS:.0f} s", f"{leader.cpu_percent:.2f} % of a core"),
        ("of the standby", f"{standby.cpu_percent:.2f} % of a core"),
        ("SIGKILL of the leader to the first new pod", f"{resting.killed_s:.1f} s"),
        ("stop of the leader, the same", f"{resting.stopped_s:.1f} s"),
        ("exec of the only operator, the same", f"{resting.start_s:.1f} s"),
        ("CPU of that operator until then", f"{resting.start_cpu_s:.1f} s"),
        ("load average of the machine, after the rest", f"{resting.load:.1f}"),
    ]
    filled = f"{plan.pods:,} pods of {len(plan.names):,} jobs, {plan.others:,} of others, {plan.nodes:,} nodes, at rest"
    return table((filled, "figure"), rows)
