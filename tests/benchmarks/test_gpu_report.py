"""`make gpu-report`: its stories with real processes on gloo, its table, and what it says where there is no GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu import machine as machines
from benchmarks.gpu import report
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.systems import SYSTEMS, command_of, environ_of, systems_of
from benchmarks.live.errors import BenchError
from benchmarks.local.places import Place
from tests.worker.job.pod import PYTHON, torch_environment

ROOT = machines.__file__.removesuffix("benchmarks/gpu/machine.py")
CARD = {"name": "H100", "gib": 79.1}


def machine_with(*cards):
    return Machine("/usr/bin/python3", "3.12.1", "2.15.0", "13.2", "2.30.7", cards)


def told_to(system, machine, index):
    """The variables of that pod."""
    place = Place(Path("/nowhere"), index, f"u{index}", port=4000, status_port=4001, fewest=1, most=2)
    return environ_of(system, machine, place)


def program_that_says(folder, text, code=0):
    """A python that answers whatever it is asked."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\necho 'no module torch' >&2\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def told(*cards):
    return json.dumps({"python": "3.12.1", "torch": "2.15.0", "cuda": "13.2", "nccl": "2.30.7", "gpus": cards})


def test_a_machine_is_measured_by_its_gpus_or_on_demand_by_its_cpu(tmp_path):
    program = program_that_says(tmp_path, told(CARD, CARD))
    assert machines.look(program, "auto").gpus == (CARD, CARD)
    assert machines.look(program, "cuda").device == "cuda"
    assert machines.look(program, "cpu").device == "cpu"


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_without_a_gpu_it_ends_with_one_line_that_says_what_can_be_done(tmp_path, device):
    with pytest.raises(BenchError, match=r"^no GPU: torch 2\.15\.0 of .*--device cpu") as ended:
        machines.look(program_that_says(tmp_path, told()), device)
    assert "\n" not in str(ended.value)


def test_a_python_without_torch_is_named_and_so_is_one_that_is_not_there(tmp_path):
    with pytest.raises(BenchError, match=r"has no torch that works \(no module torch\): name a python that has"):
        machines.look(program_that_says(tmp_path, "", code=1), "auto")
    with pytest.raises(BenchError, match="there is no program 'no-such-python'"):
        machines.look("no-such-python", "auto")


@pytest.mark.parametrize(("cards", "most"), [(0, 3), (1, 3), (2, 2), (4, 4), (8, 8), (16, 8)])
def test_each_card_has_a_rank_and_a_single_one_has_three(cards, most):
    machine = machine_with(*[CARD] * cards)
    assert machine.most == most
    assert machine.shares_a_card == (cards == 1)


def test_of_the_cards_that_the_user_has_chosen_each_pod_sees_one(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-8a1b")
    machine = machine_with(CARD, CARD)
    seen = [told_to(SYSTEMS[0], machine, index)["CUDA_VISIBLE_DEVICES"] for index in range(3)]
    assert seen == ["4", "GPU-8a1b", "4"]


def test_each_pod_sees_its_own_card_and_ranks_share_one_only_where_there_is_no_other(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "NCCL_MULTI_RANK_GPU_ENABLE"):
        monkeypatch.delenv(name, raising=False)
    both, one, none = (machine_with(*[CARD] * cards) for cards in (2, 1, 0))
    system = SYSTEMS[1]
    assert [told_to(system, both, i)["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["0", "1", "0"]
    assert [told_to(system, one, i)["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["0", "0", "0"]
    assert told_to(system, one, 0)["NCCL_MULTI_RANK_GPU_ENABLE"] == "1"
    assert "NCCL_MULTI_RANK_GPU_ENABLE" not in told_to(system, both, 0)
    assert told_to(system, none, 0)["CUDA_VISIBLE_DEVICES"] == ""


def test_both_modes_have_nccl_where_there_are_gpus_and_gloo_elsewhere():
    on_gpus, on_cpu = machine_with(CARD, CARD), machine_with()
    backends = [command_of(each, on_gpus, Path("/nowhere"))[-1:] for each in SYSTEMS[:2]]
    assert backends == [["nccl"], ["nccl"]]
    assert [each.name for each in systems_of(on_gpus)] == ["torchrun", "elastic", "library", "in-place"]
    assert [each.name for each in systems_of(on_cpu)] == ["torchrun", "elastic", "in-place"]
    assert all("nccl" not in command_of(each, on_cpu, Path("/nowhere")) for each in systems_of(on_cpu))


WHOLE = {
    "backend": "nccl",
    "start": 8.0,
    "pauses": {"join": 1.25, "join again": 1.5, "leave": 1.0, "kill": 2.0},
    "again": {"join": 0, "join again": 0, "leave": 0, "kill": 17},
    "memory": {
        "process at first": 200.0,
        "process in the end": 210.0,
        "card at first": 900.4,
        "card in the end": 910.0,
    },
    "losses": [0.5, 0.001],
    "error": "",
}
HALF = {**WHOLE, "start": None, "pauses": {}, "again": {}, "memory": {}, "losses": [], "error": "waited in vain\nlogs"}


def test_the_table_has_a_row_for_each_system_and_a_line_for_what_failed():
    made = report.as_json(machine_with(CARD, CARD), {"elastic": WHOLE, "library": HALF}, made="2026-11-25T10:00:00")
    assert json.loads(json.dumps(made)) == made
    heading, _, *lines = report.as_markdown(made).splitlines()
    assert heading.startswith("2 x H100 (79.1 GiB); torch 2.15.0, NCCL 2.30.7; 1 to 2 ranks; 2026-11-25T10:00:00")
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert lines[2:] == [
        "| plain DDP, Elastic mode | nccl | 8.00 | 1.25 | 1.50 | 1.00 | 2.00 | 17 | 0.5 to 0.001 | 900 to 910 MiB |",
        "| library, starts again | nccl | - | - | - | - | - | - | - | - |",
        "",
        "* library, starts again: waited in vain",
    ]


@pytest.mark.parametrize("losses", [[0.5, 0.6], [0.5, report.NOT_LEARNT], [report.NOT_LEARNT, 0.1]])
def test_a_training_that_learns_nothing_in_half_precision_is_told(losses):
    made = report.as_json(machine_with(CARD), {"elastic": {**WHOLE, "losses": losses}}, made="now")
    assert "| has not learnt |" in report.as_markdown(made)
    assert "all ranks on one card" in report.as_markdown(made)


@pytest.mark.processes
@pytest.mark.programs
@pytest.mark.parametrize(
    "system",
    ["in-place", *(pytest.param(name, marks=pytest.mark.extended) for name in ("torchrun", "elastic"))],
)
def test_the_stories_are_lived_through_on_gloo(tmp_path, system):
    command = [sys.executable, "-m", "benchmarks.gpu", "--python", PYTHON, "--device", "cpu", "--systems", system]
    ended = subprocess.run(
        [*command, "--out", str(tmp_path)],
        cwd=ROOT,
        env=torch_environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stderr
    made = json.loads((tmp_path / "gpu-report.json").read_text())
    assert (tmp_path / "gpu-report.md").read_text() == report.as_markdown(made) == ended.stdout
    story = made["systems"][system]
    assert story["error"] == ""
    assert story["pauses"].keys() == story["again"].keys() == set(report.CHANGES)
    assert all(pause > 0 for pause in story["pauses"].values())
    if system == "in-place":
        assert set(story["again"].values()) == {0}
    first, last = story["losses"]
    assert last < first
    assert story["memory"]["process in the end"] > 0
