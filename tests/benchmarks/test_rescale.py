"""What the benchmark makes of the steps that a pod wrote down, and how it starts pods; and once the whole of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.rescale import report, steps
from benchmarks.rescale.changes import CHANGES, Options, measure
from benchmarks.rescale.report import Picture
from benchmarks.rescale.steps import Cost, Step
from benchmarks.rescale.systems import SYSTEMS, Place, command_of, environ_of


def make_steps(first, count, *, at=0.0, pace=0.05, world=2, pid=1):
    return [Step(at + pace * i, pid, 0, world, first + i) for i in range(count)]


def make_cost(pause=1.0, *, loss=20.0, lost=0, epochs=0):
    return Cost(pause=pause, loss=loss, lost=lost, epochs=epochs, parts={"stopped": 0.1})


# Steps 0 to 45 until 2.25 s, then from the checkpoint after step 39, from 4.25 s on.
RESTARTED = [*make_steps(0, 46), *make_steps(40, 60, at=4.25, pid=2, world=3)]


def test_the_pause_is_the_longest_gap_after_the_decision():
    assert steps.pause(RESTARTED, since=2.0) == pytest.approx(2.0)
    assert steps.pause(RESTARTED, since=5.0) == pytest.approx(0.05)


def test_a_pause_may_count_from_later_on():
    assert steps.pause(RESTARTED, since=2.0, counted_from=4.0) == pytest.approx(0.25)


def test_steps_and_epochs_done_twice_are_counted():
    assert steps.lost(RESTARTED, since=2.0) == 6
    assert steps.epochs_repeated(RESTARTED, since=2.0) == 1
    assert steps.lost(RESTARTED, since=5.0) == 0
    assert steps.epochs_repeated(RESTARTED, since=5.0) == 0


def test_a_restart_at_the_end_of_an_epoch_repeats_nothing():
    planned = [*make_steps(0, 40), *make_steps(40, 40, at=3.0, pid=2)]
    assert (steps.lost(planned, since=1.9), steps.epochs_repeated(planned, since=1.9)) == (0, 0)


def test_the_effective_loss_is_what_the_pace_of_before_would_have_made():
    assert steps.effective_loss(RESTARTED, decided=2.25, seconds=4.0) == pytest.approx(80 - (79 - 45), abs=1.5)
    steady = make_steps(0, 400)
    assert steps.effective_loss(steady, decided=3.0, seconds=10.0) == pytest.approx(0, abs=1.5)


def test_a_half_written_line_is_left_out(tmp_path):
    whole = json.dumps({"time": 1.0, "pid": 2, "rank": 0, "world": 2, "step": 3})
    (tmp_path / "steps.jsonl").write_text(f"{whole}\n{whole[:20]}")
    assert steps.read(tmp_path / "steps.jsonl") == [Step(1.0, 2, 0, 2, 3)]
    assert steps.read(tmp_path / "none.jsonl") == []


def test_a_change_that_never_ended_makes_its_figures_null_and_no_others():
    figures = report.keys({"join": [make_cost(1.0), None], "leave": [make_cost(1.0), make_cost(3.0, lost=4, epochs=1)]})
    assert (figures["join_p50_s"], figures["join_max_s"]) == (None, None)
    assert (figures["leave_p50_s"], figures["leave_max_s"]) == (2.0, 3.0)
    assert (figures["steps_lost_max"], figures["epochs_repeated_planned"]) == (4, 1)


def test_the_line_names_every_system_and_compares_the_two_that_matter():
    costs = {"stock": {"join": [None]}, "tuned": {"join": [make_cost(8.0)]}, "plain": {"join": [make_cost(0.4)]}}
    line = json.loads(report.line(costs, {}, load=0.5))
    assert line["tuned_over_plain"] == {"join": 20.0}
    assert line["stock"]["join_p50_s"] is None
    assert line["plain"]["join_p50_s"] == 0.4


def test_the_picture_has_a_row_for_each_change():
    pictures = [Picture("plain", name, 2.0, RESTARTED) for name in ("join", "leave")]
    svg = report.svg_of(pictures)
    assert svg.count("<path d=") == 3
    assert ">plain: leave</text>" in svg


def make_place(tmp_path, *, index=0):
    return Place(folder=tmp_path, index=index, uid="u", port=4000, status_port=4001, epoch=1, incarnation=1, busy=False)


@pytest.mark.programs
def test_only_the_tuned_torchrun_has_what_the_operator_sets(tmp_path):
    stock, tuned = (environ_of(SYSTEMS[name], make_place(tmp_path)) for name in ("stock", "tuned"))
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in stock
    assert tuned["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert stock["PET_RDZV_CONF"] == "is_host=true"
    assert "last_call_timeout=1" in tuned["PET_RDZV_CONF"]
    assert stock["PET_RDZV_ENDPOINT"] == tuned["PET_RDZV_ENDPOINT"] == "127.0.0.1:4000"


def test_all_systems_run_the_same_script(tmp_path):
    ends = {name: command_of(system, make_place(tmp_path))[-2:] for name, system in SYSTEMS.items()}
    assert len({tuple(end) for end in ends.values()}) == 1
    assert Path(ends["stock"][0]).name == "train.py"


@pytest.mark.programs
@pytest.mark.timeout(240)
def test_a_pod_that_leaves_a_plain_job_has_nothing_done_again(tmp_path):
    result = measure(SYSTEMS["plain"], "leave", Options(tmp_path / "run", window=2.0))
    assert result.cost is not None
    assert (result.cost.lost, result.cost.epochs) == (0, 0)
    assert {"stopped", "formed", "started", "stepped"} <= set(result.cost.parts)
    assert result.steps[-1].world == CHANGES["leave"].world
