"""What the benchmark makes of the trainings' journals, and how it starts them; and real trainings, small."""

from __future__ import annotations

import json
from io import StringIO
from xml.etree import ElementTree

import pytest
from rich.console import Console

from benchmarks.live.errors import BenchError
from benchmarks.torch import digits, figures, plot, report, runs, usage
from benchmarks.torch.figures import Row
from benchmarks.torch.hardware import Hardware
from benchmarks.torch.runs import Result, result_of
from benchmarks.torch.ways import WAYS, command_of, environ_of, why_not
from devcluster.progress import Progress
from elastic_worker import contract

CORES = Hardware(cpu="some CPU", cores=2)
GPUS = Hardware(cpu="some CPU", cores=16, gpus=("some GPU",) * 8)
MOST_WRONG = 0.15
"""Of the test images; who guesses has nine tenths of them wrong."""


def make_result(*seconds, images=1000, busy=(1.0,), cpu=1.0):
    counts = {"one device": (90.0, 100.0, 30.0)}
    return Result(seconds or (1.0,), images, cpu, busy, peak_bytes=2**20, counts=counts, parameters=7)


def make_rows(**seconds):
    """By name and size, as in ddp_2=0.5; None for one that was left out."""
    rows = []
    for name, took in seconds.items():
        way, _, size = name.rpartition("_")
        results = [] if took is None else [make_result(took)]
        rows.append(Row(WAYS[way], int(size), results, "" if results else "there is none"))
    return rows


def make_journal(rank=0, *, seconds=(9.0, 2.0, 4.0), cpu=1.0, peaks=None):
    epochs, now = [], 100.0
    for took in seconds:
        epochs.append({"began": now, "ended": now + took, "images": 64, "cpu_seconds": cpu})
        now += took
    counts = {"one device": [3.0, 4.0, 1.0]} if rank == 0 else {}
    return {"rank": rank, "epochs": epochs, "counts": counts, "peak_bytes": peaks or {"cpu": 5 + rank}, "parameters": 7}


def test_the_first_epoch_is_not_measured_and_cpu_time_is_that_of_all_processes():
    result = result_of([make_journal(), make_journal(1, cpu=0.5)])
    assert (result.seconds, result.images) == ((2.0, 4.0), 64)
    assert result.cpu_seconds == 1.5
    assert result.busy == pytest.approx((2 / 6, 1 / 6))
    assert (result.peak_bytes, result.accuracy) == (6, 0.75)


def test_the_gpus_of_a_training_are_watched_from_its_first_measured_epoch_on():
    # Times are the machine's own, in its time zone.
    lines = [
        *(f"{stamp(109.5)}, {index}, 10" for index in range(3)),
        *(f"{stamp(second)}, {index}, {90 - index}" for second in (110.5, 112.0) for index in range(3)),
        f"{stamp(114.0)}, 0, [N/A]",
        f"{stamp(200.0)}, 0, 5",
        f"{stamp(114.5)}, 1",
    ]
    journals = [make_journal(peaks={"cuda:0": 5, "cuda:1": 8}, seconds=(10.0, 5.0))]
    assert result_of(journals, "\n".join(lines)).busy == pytest.approx((0.9, 0.89))


def stamp(seconds):
    return usage.datetime.fromtimestamp(seconds).strftime(usage.TIME)[:-3]


def test_speed_up_and_efficiency_are_those_of_the_fastest_epochs():
    rows = [Row(WAYS["single"], 1, [make_result(4.0, 2.0), make_result(3.0)]), *make_rows(ddp_4=1.0, amp_2=2.5)]
    ratios = figures.ratios(rows)
    assert (ratios["single_1_speed_up"], ratios["single_1_efficiency"]) == (1.0, 1.0)
    assert (ratios["ddp_4_speed_up"], ratios["ddp_4_efficiency"], ratios["ddp_4_cpu"]) == (2.0, 0.5, 1.0)
    assert ratios["amp_2_speed_up"] == 0.8


def test_without_the_one_device_there_are_no_ratios():
    assert figures.ratios(make_rows(ddp_2=1.0)) == {}
    assert figures.ratios(make_rows(single_1=None, ddp_2=1.0)) == {}


def test_the_published_order_is_compared_pair_by_pair_where_it_can_be():
    rows = make_rows(single_1=8.0, data_parallel_8=4.0, ddp_8=1.6, amp_8=0.8)
    steps = {(step.slower, step.faster): step for step in figures.steps(rows, GPUS)}
    assert steps["single", "ddp"].published == pytest.approx(1786 / 239)
    assert {pair: step.here for pair, step in steps.items()} == pytest.approx(
        {("single", "data_parallel"): 2.0, ("data_parallel", "ddp"): 2.5, ("single", "ddp"): 5.0, ("ddp", "amp"): 2.0}
    )
    assert not any(step.remark for step in steps.values())


def test_on_a_cpu_the_order_is_compared_with_as_many_processes_as_there_are_cores():
    rows = make_rows(single_1=8.0, data_parallel_2=None, ddp_2=5.0, ddp_4=6.0, amp_2=4.0)
    steps = {(step.slower, step.faster): step for step in figures.steps(rows, CORES)}
    assert (steps["single", "ddp"].here, steps["single", "ddp"].size) == (1.6, 2)
    assert (steps["single", "data_parallel"].here, steps["single", "data_parallel"].remark) == (None, "there is none")
    assert "not fp16 on tensor cores" in steps["ddp", "amp"].remark


def test_what_the_hardware_cannot_show_is_said():
    rows = make_rows(single_1=8.0, ddp_2=5.0, ddp_4=6.0)
    told = figures.cannot_show(rows, CORES)
    assert [sentence.split(":")[0] for sentence in told] == [
        "There is no GPU",
        "4 processes share 2 cores",
        "There are 2 devices, not 8",
    ]
    assert figures.cannot_show(make_rows(single_1=8.0, ddp_8=1.0), GPUS) == []
    busy = Hardware(cpu="some CPU", cores=2, has_bf16=False, load=3.21)
    told = " ".join(figures.cannot_show([], busy))
    assert "no bf16" in told
    assert "load 3.2" in told


def test_the_tables_and_the_line_name_what_was_left_out_and_why():
    rows = make_rows(single_1=2.0, data_parallel_2=None, ddp_2=1.25)
    console = Console(width=150, record=True, file=StringIO())
    report.show(rows, CORES, console, title="digits")
    shown = console.export_text()
    assert "DataParallel with 2 was left out: there is none." in shown
    (ddp,) = (line for line in shown.splitlines() if line.startswith("│ DDP, torchrun") and "over" not in line)
    assert ddp.split("│")[5].strip() == "1.60"
    told = json.loads(report.line(rows, CORES))
    assert told["skipped"] == {"data_parallel_2": "there is none"}
    assert told["ratios"]["ddp_2_speed_up"] == 1.6
    assert told["ways"].keys() == {"single_1", "ddp_2"}


def test_the_picture_has_a_bar_for_each_training_and_marks_the_ideal():
    rows = make_rows(single_1=2.0, data_parallel_2=None, ddp_2=1.25, ddp_4=1.5)
    root = ElementTree.fromstring(plot.svg_of(rows, CORES))
    bars = [float(rect.get("width")) for rect in root.findall("{*}rect")][1:]
    assert bars == pytest.approx([bars[0], bars[0] * 1.6, bars[0] * 4 / 3], abs=0.2)
    # On two cores four processes are to be as fast as two.
    ideal = [mark.get("d").split(" ")[0] for mark in root.findall("{*}path")]
    assert ideal[1] == ideal[2] != ideal[0]


def test_what_makes_no_sense_on_this_machine_is_left_out_with_the_reason():
    assert "there is none" in why_not(WAYS["data_parallel"], 2, CORES)
    assert why_not(WAYS["data_parallel"], 2, GPUS) == ""
    assert why_not(WAYS["ddp"], 4, CORES) == ""
    assert "not 9 GPUs" in why_not(WAYS["ddp"], 9, GPUS)


@pytest.mark.programs
def test_each_way_has_its_starter_and_elastic_mode_runs_torchruns_script(tmp_path):
    commands = {name: command_of(way, 4, ["--epochs=2"]) for name, way in WAYS.items()}
    assert all(command[-1] == "--epochs=2" for command in commands.values())
    assert {"torch.distributed.run", "4"} <= set(commands["ddp"])
    scripts = {name: next(w for w in command if "/scripts/" in w) for name, command in commands.items()}
    assert scripts["elastic"] == scripts["ddp"] == scripts["amp"] != scripts["spawn"]
    assert environ_of(WAYS["elastic"], 4, tmp_path)[contract.ENV_NPROC] == "4"
    assert contract.ENV_NPROC not in environ_of(WAYS["ddp"], 4, tmp_path)


def train(way, size, folder, *, epochs, more=()):
    arguments = [f"--digits={digits.ensure(Progress())}", "--batch-size=64", "--lr=0.05", "--width=8"]
    return runs.train(WAYS[way], size, [*arguments, f"--epochs={epochs}", *more], folder=folder, hardware=CORES)


@pytest.mark.programs
@pytest.mark.timeout(240)
def test_two_processes_and_one_learn_the_same_and_each_evaluation_counts_the_same(tmp_path):
    one, two = train("single", 1, tmp_path / "one", epochs=5), train("ddp", 2, tmp_path / "two", epochs=5)
    assert one.accuracy == two.accuracy > 1 - MOST_WRONG
    assert two.counts["reduce"] == two.counts["all-reduce"] == pytest.approx(two.counts["one device"])
    assert two.counts["all-reduce"][:2] == one.counts["one device"][:2]
    assert two.counts["all-reduce"] == pytest.approx(one.counts["one device"], rel=1e-3)
    assert (one.images, one.counts["one device"][1]) == (two.images, 397)
    assert two.cpu_seconds > 0
    assert two.peak_bytes > 2**20


@pytest.mark.programs
@pytest.mark.timeout(240)
def test_one_process_goes_on_from_the_checkpoint_of_two(tmp_path):
    whole = train("single", 1, tmp_path / "whole", epochs=3)
    train("ddp", 2, tmp_path / "parts", epochs=2)
    rest = train("single", 1, tmp_path / "parts", epochs=3)
    assert len(rest.seconds) == 1
    assert rest.counts["one device"] == pytest.approx(whole.counts["one device"], rel=1e-3)


@pytest.mark.extended
@pytest.mark.programs
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["spawn", "amp", "elastic", "library"])
def test_two_processes_learn_the_digits_in_each_way(way, tmp_path):
    result = train(way, 2, tmp_path, epochs=5)
    assert result.accuracy > 1 - MOST_WRONG
    assert len(result.busy) == 2
    together = result.counts["all-reduce"]
    assert together[:2] == result.counts["one device"][:2]
    assert together == pytest.approx(result.counts["one device"], rel=1e-3)


@pytest.mark.extended
@pytest.mark.programs
@pytest.mark.timeout(240)
def test_without_digits_resnet_50_sees_imagenets_shapes(tmp_path):
    arguments = ["--images=8", "--image-size=64", "--batch-size=4", "--epochs=1"]
    result = runs.train(WAYS["ddp"], 1, arguments, folder=tmp_path, hardware=CORES)
    assert result.parameters == 25_557_032
    assert (result.images, result.counts["one device"][1]) == (8, 1000)


@pytest.mark.programs
def test_a_training_that_fails_says_why(tmp_path):
    with pytest.raises(BenchError, match="no-such-file"):
        runs.train(WAYS["single"], 1, ["--digits=/no-such-file"], folder=tmp_path, hardware=CORES)
