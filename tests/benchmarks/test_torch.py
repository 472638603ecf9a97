"""What the benchmark makes of the trainings' journals, and what it starts for each way; and real trainings, small."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from benchmarks.live.errors import BenchError
from benchmarks.local import cards
from benchmarks.torch import digits, figures, hardware, plot, report, runs, usage
from benchmarks.torch.figures import Row
from benchmarks.torch.hardware import Gpu, Hardware
from benchmarks.torch.runs import Result, result_of
from benchmarks.torch.ways import WAYS, starts, why_not
from devcluster.progress import Progress
from elastic_worker import contract
from tests.docs.pages import REPOSITORY

CORES = Hardware(cpu="some CPU", cores=2)
GPUS = Hardware(cpu="some CPU", cores=16, gpus=tuple(Gpu(f"GPU-{index}", "some GPU") for index in range(8)))
PAGE = REPOSITORY / "docs" / "ways-to-train.md"
MOST_WRONG = 0.15
"""Of the test images; a guess is wrong for nine tenths of them."""


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


def make_journal(rank=0, *, seconds=(9.0, 2.0, 4.0), cpu=1.0, peaks=()):
    epochs, now = [], 100.0
    for took in seconds:
        epochs.append({"began": now, "ended": now + took, "images": 64, "cpu_seconds": cpu})
        now += took
    counts = {"one device": [3.0, 4.0, 1.0]} if rank == 0 else {}
    return {"rank": rank, "epochs": epochs, "counts": counts, "peak_bytes": peaks or [5 + rank], "parameters": 7}


def test_the_first_epoch_is_not_measured_and_cpu_time_is_that_of_all_processes():
    result = result_of([make_journal(), make_journal(1, cpu=0.5)])
    assert (result.seconds, result.images) == ((2.0, 4.0), 64)
    assert result.cpu_seconds == 1.5
    assert result.busy == pytest.approx((2 / 6, 1 / 6))
    assert (result.peak_bytes, result.accuracy) == (6, 0.75)


def test_the_gpus_of_a_training_are_watched_from_its_first_measured_epoch_on():
    # Times are the machine's own, in its time zone.
    lines = [
        *(f"{stamp(109.5)}, GPU-{index}, 10" for index in range(3)),
        *(f"{stamp(second)}, GPU-{index}, {90 - index}" for second in (110.5, 112.0) for index in range(3)),
        f"{stamp(114.0)}, GPU-0, [N/A]",
        f"{stamp(200.0)}, GPU-0, 5",
        f"{stamp(114.5)}, GPU-1",
    ]
    journals = [make_journal(peaks=[5, 8], seconds=(10.0, 5.0))]
    result = result_of(journals, "\n".join(lines), gpus=["GPU-0", "GPU-1"])
    assert (result.busy, result.peak_bytes) == (pytest.approx((0.9, 0.89)), 8)
    assert result_of(journals, "", gpus=["GPU-0"]).busy == ()


def stamp(seconds):
    return usage.datetime.fromtimestamp(seconds).strftime(usage.TIME)[:-3]


def test_speed_up_and_efficiency_are_those_of_the_fastest_epochs():
    rows = [Row(WAYS["single"], 1, [make_result(4.0, 2.0), make_result(3.0)]), *make_rows(ddp_4=1.0, amp_2=2.5)]
    ratios = figures.ratios(rows)
    assert (ratios["single_1_speed_up"], ratios["single_1_efficiency"]) == (1.0, 1.0)
    assert (ratios["ddp_4_speed_up"], ratios["ddp_4_efficiency"], ratios["ddp_4_cpu"]) == (2.0, 0.5, 1.0)
    assert ratios["amp_2_speed_up"] == 0.8


def test_what_the_operator_starts_is_compared_with_the_same_by_hand_and_with_as_many():
    rows = make_rows(
        ddp_2=1.0, ddp_4=3.0, ddp_elastic_2=1.25, ddp_torchrun_2=2.0, library_elastic_2=0.5, amp_elastic_2=1
    )
    assert figures.ratios(rows) == {
        "ddp_elastic_2_over_by_hand": 0.8,
        "ddp_torchrun_2_over_by_hand": 0.5,
        "library_elastic_2_over_by_hand": 2.0,
    }


def test_without_the_one_device_there_is_no_speed_up():
    assert figures.ratios(make_rows(ddp_2=1.0)) == {}
    assert figures.ratios(make_rows(single_1=None, ddp_2=1.0)) == {}


def pairs(rows, machine):
    return {(step.slower.name, step.faster.name): step for step in figures.steps(rows, machine)}


def test_the_published_order_is_compared_pair_by_pair_where_it_can_be():
    steps = pairs(make_rows(single_1=8.0, data_parallel_8=4.0, ddp_8=1.6, amp_8=0.8), GPUS)
    assert steps["single", "ddp"].published == pytest.approx(1786 / 239)
    assert {pair: step.here for pair, step in steps.items()} == pytest.approx(
        {("single", "data_parallel"): 2.0, ("data_parallel", "ddp"): 2.5, ("single", "ddp"): 5.0, ("ddp", "amp"): 2.0}
    )
    assert not any(step.remark for step in steps.values())


def test_on_a_cpu_the_order_is_compared_with_as_many_processes_as_there_are_cores():
    rows = make_rows(single_1=8.0, data_parallel_2=None, ddp_2=5.0, ddp_4=6.0, amp_2=4.0)
    steps = pairs(rows, CORES)
    assert (steps["single", "ddp"].here, steps["single", "ddp"].size) == (1.6, 2)
    assert (steps["single", "data_parallel"].here, steps["single", "data_parallel"].remark) == (None, "there is none")
    assert "not fp16 on tensor cores" in steps["ddp", "amp"].remark
    assert pairs(make_rows(single_1=8.0), CORES)["single", "ddp"].remark == "not measured"


def test_what_the_hardware_cannot_show_is_said():
    told = figures.cannot_show(make_rows(single_1=8.0, ddp_2=5.0, ddp_4=6.0), CORES)
    assert [sentence.split(" share ")[0].split(":")[0] for sentence in told] == [
        "There is no GPU",
        "Mixed precision is bf16 here, for which the CPU has instructions; what tensor cores do is not seen.",
        "4 processes",
        "There are 2 devices, not 8",
    ]
    assert figures.cannot_show(make_rows(single_1=8.0, ddp_8=1.0), GPUS) == []
    old = Hardware(cpu="some CPU", cores=2, has_bf16=False)
    assert "the CPU has no instructions" in " ".join(figures.cannot_show([], old))


def test_that_the_machine_was_not_at_rest_is_said_before_the_first_figure():
    rows, busy = make_rows(single_1=2.0, ddp_2=1.25), Hardware(cpu="some CPU", cores=2, load=3.21)
    before, _, _ = report.markdown(rows, busy, title="Digits").partition("| way")
    assert "load 3.2 on 2 cores" in before
    assert "load 3.2" in json.loads(report.line(rows, busy))["cannot_show"][0]
    assert "at rest" not in report.markdown(rows, CORES, title="Digits")


def test_the_tables_and_the_line_name_what_was_left_out_and_why():
    rows = make_rows(single_1=2.0, data_parallel_2=None, data_parallel_4=None, ddp_2=1.25)
    shown = report.markdown(rows, CORES, title="Digits")
    assert "* DataParallel with 2 and 4 was left out: there is none." in shown
    (ddp,) = (line for line in shown.splitlines() if line.startswith("| DDP, torchrun") and "by hand" in line)
    assert ddp.split("|")[6].strip() == "1.60"
    told = json.loads(report.line(rows, CORES))
    assert told["skipped"] == {"data_parallel_2": "there is none", "data_parallel_4": "there is none"}
    assert told["ratios"]["ddp_2_speed_up"] == 1.6
    assert told["ways"].keys() == {"single_1", "ddp_2"}


def test_the_published_run_stands_beside_ours():
    shown = report.markdown(make_rows(single_1=2.0, ddp_2=1.25), CORES, title="Digits")
    assert "1,786" in shown
    assert "36.5%" in shown
    (over,) = (line for line in shown.splitlines() if line.startswith("| DDP, torchrun over one device"))
    assert [cell.strip() for cell in over.split("|")[2:4]] == ["7.47", "1.60, with 2"]


def test_only_the_figures_of_a_page_are_renewed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Ways\n{report.BEGIN}\nold\n{report.END}\nthe rest\n")
    report.renew(page, "new\n")
    assert page.read_text() == f"# Ways\n{report.BEGIN}\n\nnew\n\n{report.END}\nthe rest\n"
    page.write_text("# Ways\n")
    with pytest.raises(BenchError, match="has no place for the figures"):
        report.renew(page, "new\n")


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


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [(None, ["GPU-aa", "GPU-ab"]), ("1", ["GPU-ab"]), ("GPU-aa", ["GPU-aa"]), ("GPU-ab", ["GPU-ab"]), ("", [])],
)
def test_the_gpus_that_count_are_those_that_the_user_has_chosen(monkeypatch, tmp_path, chosen, seen):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\nprintf 'GPU-aa, NVIDIA H100 80GB\\nGPU-ab, NVIDIA H100 80GB\\n'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv(cards.VISIBLE, raising=False)
    if chosen is not None:
        monkeypatch.setenv(cards.VISIBLE, chosen)
    machine = hardware.look()
    assert [gpu.uuid for gpu in machine.gpus] == seen
    assert ("x NVIDIA H100 80GB" in str(machine)) == bool(seen)


@pytest.fixture
def started(tmp_path):
    """What is started for four processes, by the way's name."""
    return {name: starts(way, 4, ["--epochs=2"], folder=tmp_path, hardware=GPUS) for name, way in WAYS.items()}


@pytest.mark.programs
def test_by_hand_one_command_is_started_and_in_pods_one_for_each_process(started):
    assert {name: len(each) for name, each in started.items()} == {
        name: 4 if way.started != "by hand" and name != "spawn_elastic" else 1 for name, way in WAYS.items()
    }
    assert all(start.command[-1] == "--epochs=2" for each in started.values() for start in each)
    assert {"torch.distributed.run", "4"} <= set(started["ddp"][0].command)


@pytest.mark.programs
def test_every_form_of_ddp_but_mp_spawn_runs_the_same_script(started):
    scripts = {name: next(w for w in each[0].command if "/scripts/" in w) for name, each in started.items()}
    assert len({script for name, script in scripts.items() if name.startswith(("ddp", "amp"))}) == 1
    assert scripts["spawn"] == scripts["spawn_elastic"] != scripts["ddp"]


@pytest.mark.programs
def test_each_pod_sees_one_gpu_and_one_that_starts_all_processes_sees_all(started):
    seen = {name: [start.environ[cards.VISIBLE] for start in each] for name, each in started.items()}
    assert seen["ddp"] == seen["spawn_elastic"] == ["GPU-0,GPU-1,GPU-2,GPU-3"]
    assert seen["ddp_torchrun"] == seen["ddp_elastic"] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]


@pytest.mark.programs
def test_pods_are_told_what_the_operator_tells_them_and_nothing_else_is(started, tmp_path):
    assert started["ddp_torchrun"][1].environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert started["ddp_elastic"][0].environ[contract.ENV_CHECKPOINT_PATH] == str(tmp_path / "checkpoint.pt")
    assert started["library_elastic"][0].environ[contract.ENV_CHECKPOINT_PATH] == ""
    assert not [name for name in started["ddp"][0].environ if name.startswith(("ELASTIC_", "PET_"))]
    membership = json.loads((tmp_path / "membership").read_text())
    assert (len(membership["members"]), membership["min"], membership["max"]) == (4, 4, 4)


def test_the_page_has_a_row_for_each_way_or_the_reason_why_not():
    shown = PAGE.read_text()
    assert report.BEGIN in shown
    for way in WAYS.values():
        assert f"| {way.title} " in shown or f"* {way.title} with" in shown, f"make bench-torch: no {way.name}"


def train(way, size, folder, *more, epochs):
    arguments = [f"--digits={digits.ensure(Progress())}", "--batch-size=64", "--lr=0.05", "--width=8"]
    return runs.train(WAYS[way], size, [*arguments, f"--epochs={epochs}", *more], folder=folder, hardware=CORES)


def assert_same(counts, others):
    """Right answers and images to the last, the loss but for rounding."""
    assert counts[:2] == others[:2]
    assert counts == pytest.approx(others, rel=1e-6)


@pytest.mark.processes
@pytest.mark.programs
@pytest.mark.timeout(240)
def test_two_processes_and_one_learn_the_same_and_each_evaluation_counts_the_same(tmp_path):
    one = train("single", 1, tmp_path / "one", "--double", epochs=5)
    two = train("ddp", 2, tmp_path / "two", "--double", epochs=5)
    assert one.accuracy == two.accuracy > 1 - MOST_WRONG
    assert two.counts["reduce"] == two.counts["all-reduce"]
    assert_same(two.counts["all-reduce"], two.counts["one device"])
    assert_same(two.counts["all-reduce"], one.counts["one device"])
    assert (one.images, one.counts["one device"][1]) == (two.images, 397)
    assert two.cpu_seconds > 0
    assert two.peak_bytes > 2**20


@pytest.mark.extended
@pytest.mark.processes
@pytest.mark.programs
@pytest.mark.timeout(240)
def test_one_process_goes_on_from_the_checkpoint_of_two(tmp_path):
    whole = train("single", 1, tmp_path / "whole", "--double", epochs=3)
    train("ddp", 2, tmp_path / "parts", "--double", epochs=2)
    rest = train("single", 1, tmp_path / "parts", "--double", epochs=3)
    assert len(rest.seconds) == 1
    assert_same(rest.counts["one device"], whole.counts["one device"])


SHUFFLED_ALIKE = ("spawn", "ddp_torchrun", "ddp_elastic", "spawn_elastic")
OTHERWISE = ("amp", "amp_torchrun", "amp_elastic", "library_elastic")
"""Other precision, or another order of samples."""


@pytest.mark.extended
@pytest.mark.processes
@pytest.mark.programs
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", [*SHUFFLED_ALIKE, *OTHERWISE])
def test_two_processes_learn_the_digits_in_each_way(way, tmp_path):
    result = train(way, 2, tmp_path, *(["--double"] if way in SHUFFLED_ALIKE else []), epochs=5)
    assert result.accuracy > 1 - MOST_WRONG
    assert len(result.busy) == 2
    assert result.counts["all-reduce"][:2] == result.counts["one device"][:2]
    assert result.counts["all-reduce"] == pytest.approx(result.counts["one device"], rel=1e-3)


@pytest.mark.extended
@pytest.mark.processes
@pytest.mark.programs
@pytest.mark.timeout(240)
def test_without_digits_resnet_50_sees_imagenets_shapes(tmp_path):
    arguments = ["--images=8", "--tests=5", "--image-size=64", "--batch-size=4", "--epochs=1"]
    result = runs.train(WAYS["ddp"], 1, arguments, folder=tmp_path, hardware=CORES)
    assert result.parameters == 25_557_032
    assert (result.images, result.counts["one device"][1]) == (8, 5)


@pytest.mark.processes
@pytest.mark.programs
def test_a_training_that_fails_says_why(tmp_path):
    with pytest.raises(BenchError, match="no-such-file"):
        runs.train(WAYS["single"], 1, ["--digits=/no-such-file"], folder=tmp_path, hardware=CORES)
