"""What the benchmark makes of the steps that a pod wrote down, and how it starts pods; and once the whole of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.live.audit import Write
from benchmarks.local.places import Place
from benchmarks.rescale import lost_master, report, steps
from benchmarks.rescale.changes import CHANGES, Options, measure
from benchmarks.rescale.loads import SMALL, Load, loads
from benchmarks.rescale.lost_master import BOUND, MADE
from benchmarks.rescale.steps import Cost, Step
from benchmarks.rescale.systems import SYSTEMS, command_of, environ_of


def make_steps(first, count, *, at=0.0, pace=0.05, world=2, process=1):
    return [Step(at + pace * i, process, 0, world, first + i) for i in range(count)]


def make_cost(pause=1.0, *, loss=20.0, lost=0, epochs=0):
    return Cost(pause=pause, extra=pause - 0.05, loss=loss, lost=lost, epochs=epochs, parts={"stopped": 0.1})


# Steps 0 to 45 until 2.25 s, then from the checkpoint after step 39, from 4.25 s on.
RESTARTED = [*make_steps(0, 46), *make_steps(40, 60, at=4.25, process=2, world=3)]


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


def test_what_is_done_again_later_than_is_looked_at_counts_all_the_same():
    looked_at = RESTARTED[:48]
    assert (looked_at[-1].step, steps.lost(looked_at, since=2.0), steps.epochs_repeated(looked_at, since=2.0)) == (
        41,
        6,
        1,
    )
    assert steps.effective_loss(looked_at, decided=2.25, seconds=2.05) == pytest.approx(41 + 45 - 41, abs=1.5)


def test_a_step_that_was_under_way_when_the_master_died_does_not_end_the_pause():
    under_way = [*make_steps(0, 40), *make_steps(40, 20, at=9.0, process=2)]
    assert steps.pause(under_way, since=1.94, counted_from=1.94) == pytest.approx(9.0 - 1.94)


def test_a_restart_at_the_end_of_an_epoch_repeats_nothing():
    planned = [*make_steps(0, 40), *make_steps(40, 40, at=3.0, process=2)]
    assert (steps.lost(planned, since=1.9), steps.epochs_repeated(planned, since=1.9)) == (0, 0)


def test_the_effective_loss_is_what_the_pace_of_before_would_have_made():
    assert steps.effective_loss(RESTARTED, decided=2.25, seconds=4.0) == pytest.approx(80 - (79 - 45), abs=1.5)
    steady = make_steps(0, 400)
    assert steps.effective_loss(steady, decided=3.0, seconds=10.0) == pytest.approx(0, abs=1.5)


def test_a_step_that_was_begun_again_is_lost_although_it_counted_once():
    again = [Step(2.3, 1, 0, 2, 46, generation=2, tries=3)]
    assert steps.lost([*make_steps(0, 46), *again], since=2.26) == 2
    assert steps.lost([*make_steps(0, 46), *again], since=2.4) == 0


def test_the_pace_of_before_is_not_that_of_the_change():
    assert steps.interval(RESTARTED, until=4.3) == pytest.approx(0.05)


def test_a_process_that_stays_is_told_apart_by_the_generation_of_its_group():
    stays = [Step(1.0, 7, 0, 2, 1, generation=generation) for generation in (1, 2)]
    starts_again = [Step(1.0, process, 0, 2, 1) for process in (7, 8)]
    assert stays[0].group != stays[1].group
    assert starts_again[0].group != starts_again[1].group


def test_a_half_written_line_is_left_out(tmp_path):
    whole = json.dumps({"time": 1.0, "process": 2, "rank": 0, "world": 2, "step": 3})
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
    line = json.loads(report.line({SMALL.name: costs}, load=0.5))
    assert line["tuned_over_plain"] == {"join": 20.0}
    assert line["stock"]["join_p50_s"] is None
    assert line["plain"]["join_p50_s"] == 0.4
    assert line["plain"]["join_extra_p50_s"] == 0.35
    assert "tuned_over_library" not in line


def test_the_library_is_compared_with_the_time_of_importing_torch_and_without_it():
    costs = {"tuned": {"join": [make_cost(8.0)], "kill": [None]}, "library": {"join": [make_cost(0.1)]}}
    line = json.loads(report.line({SMALL.name: costs}, load=0.5, import_seconds=2.0))
    assert line["tuned_over_library"] == {"join": 80.0}
    assert line["tuned_without_import_over_library"] == {"join": 60.0}
    assert line["import_torch_s"] == 2.0


def test_other_loads_stand_under_their_names_beside_what_they_are_times_the_small_one():
    small = {"library": {"join": [make_cost(0.1)], "kill": [None]}}
    large = {"library": {"join": [make_cost(2.0)], "kill": [make_cost(0.2)]}}
    line = json.loads(report.line({SMALL.name: small, "1GB": large}, load=0.5))
    assert (line["library"]["join_p50_s"], line["1GB"]["library"]["join_p50_s"]) == (0.1, 2.0)
    assert line["1GB"]["times_small"] == {"library": {"join": 20.0}}


def test_no_checkpoint_of_the_larger_loads_falls_into_what_is_measured_but_the_first():
    for load in loads(save_minutes=2).values():
        assert ("--save-every" in load.arguments) == (load.megabytes > 0)
    assert Load("x", save_minutes=2).arguments == ["--save-every", "240"]


def test_the_parts_of_a_lost_master_begin_with_the_kill_and_leave_out_its_first_start():
    """A creation may be answered after the binding: kube-scheduler sees the pod before."""
    writes = [
        Write(what, name, "somebody", received=received, done=received + 0.3 * (what == MADE))
        for what, name, received in [
            (MADE, "toy-0-master-0", 1.0),
            (BOUND, "toy-0-master-0", 1.5),
            (MADE, "toy-1-master-0", 10.2),
            (MADE, "toy-0-master-0", 10.25),
            (BOUND, "toy-0-master-0", 10.5),
        ]
    ]
    made, bound = (lost_master.first(writes, what, "toy-0-master-0", since=10.0) for what in (MADE, BOUND))
    assert lost_master.first(writes, BOUND, "toy-1-master-0", since=10.0) is None
    parts = lost_master.parts({"killed": 10.0, "made": made, "bound": bound, "begun": 11.5, "stepped": 15.0})
    assert parts == {"made": 0.25, "bound": 0.25, "begun": 1.0, "stepped": 3.5}


def make_place(tmp_path):
    return Place(folder=tmp_path, index=0, uid="u", port=4000, status_port=4001, fewest=2, most=4)


@pytest.mark.programs
def test_only_the_tuned_torchrun_has_what_the_operator_sets(tmp_path):
    stock, tuned = (environ_of(SYSTEMS[name], make_place(tmp_path)) for name in ("stock", "tuned"))
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in stock
    assert tuned["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert stock["PET_RDZV_CONF"] == "is_host=true"
    assert "last_call_timeout=1" in tuned["PET_RDZV_CONF"]
    assert stock["PET_RDZV_ENDPOINT"] == tuned["PET_RDZV_ENDPOINT"] == "127.0.0.1:4000"


def test_all_systems_but_the_library_run_the_same_script(tmp_path):
    ends = {name: command_of(system, tmp_path, SMALL)[-2:] for name, system in SYSTEMS.items()}
    assert Path(ends.pop("library")[0]).name == "train_library.py"
    assert len({tuple(end) for end in ends.values()}) == 1
    assert Path(ends["stock"][0]).name == "train.py"


@pytest.mark.programs
def test_the_library_has_no_checkpoint_to_watch(tmp_path):
    plain, library = (environ_of(SYSTEMS[name], make_place(tmp_path)) for name in ("plain", "library"))
    assert plain["ELASTIC_CHECKPOINT_PATH"] == str(tmp_path / "checkpoint.pt")
    assert library["ELASTIC_CHECKPOINT_PATH"] == ""


@pytest.mark.extended
@pytest.mark.programs
@pytest.mark.timeout(240)
def test_a_pod_that_leaves_a_plain_job_has_nothing_done_again(tmp_path):
    # A step of 50 ms may be over on a busy machine before its process is frozen.
    load = Load("slow", step_seconds=0.5)
    result = measure(SYSTEMS["plain"], "leave", Options(tmp_path / "run", load, steps=10, seconds=2.0))
    assert result.cost is not None, result.logs
    assert (result.cost.lost, result.cost.epochs) == (0, 0)
    assert {"stopped", "formed", "started", "stepped"} <= set(result.cost.parts)
    assert result.steps[-1].world == CHANGES["leave"].world


@pytest.mark.extended
@pytest.mark.programs
@pytest.mark.timeout(240)
def test_a_pod_that_joins_a_job_with_the_library_restarts_nobody(tmp_path):
    load = Load("some", megabytes=20, save_minutes=2)
    result = measure(SYSTEMS["library"], "join", Options(tmp_path / "run", load, seconds=2.0))
    assert result.cost is not None, result.logs
    assert (result.cost.lost, result.cost.epochs) == (0, 0)
    assert {"made", "formed", "joined", "stepped"} <= set(result.cost.parts)
    assert len({step.process for step in result.steps}) == 1
    assert [step.world for step in (result.steps[0], result.steps[-1])] == [2, 3]
