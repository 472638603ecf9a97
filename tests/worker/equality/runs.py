"""Whole runs of a training script, of one size or of changing sizes, and their records."""

import json
import os
import signal
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path

import torch

from devcluster import torchtree
from tests.worker.job.local import LocalJob, free_port, tell
from tests.worker.job.pod import PYTHON, torch_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
TRAIN = HERE / "train.py"
LIBRARY = HERE.parent / "job" / "library.py"
TREE = os.environ.get("ELASTIC_TORCH_TREE", torchtree.DEFAULT_TREE)


def environment(**more):
    """The environment of a process with torch and the library, without a launcher."""
    surroundings = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "SLURM_", "TORCHELASTIC_")
    clean = {name: value for name, value in torch_environment(TREE).items() if not name.startswith(surroundings)}
    return {**clean, "PYTHONPATH": f"{clean['PYTHONPATH']}:{ROOT / 'worker'}", **more}


def start(command, **more):
    """A process whose output is kept for `end`."""
    command = [PYTHON, *map(str, command)]
    outputs = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, env=environment(**more), text=True, start_new_session=True, **outputs)


def end(process, *, seconds=90, written=int):
    """Its exit code and its output; it is killed with all its children after a stall of `seconds`.

    It stalls while `written()`, a number of bytes, does not grow, so a slow machine is no reason to kill it. SIGUSR1
    first makes the scripts print the stacks of all their threads.
    """
    output, before = None, -1
    while output is None:
        now = written()
        if now == before:
            raise AssertionError(f"it stood still for {seconds} s\n{kill(process)}")
        before = now
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
    return process.returncode, output


def kill(process):
    """Its output, with the stacks of those processes that print them for SIGUSR1."""
    for number in (signal.SIGUSR1, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            output, _ = process.communicate(timeout=5)
            return output
    return "its output is not at its end: a process of another group has it"


def several(folder, cases, *, script=TRAIN, seconds=90):
    """Runs of one size each, as torchrun does it, but with one import of torch. `cases`: name -> (world, arguments)."""
    groups = []
    for name, (world, arguments) in cases.items():
        (folder / name).mkdir(parents=True)
        groups.append([world, free_port(), [str(folder / name), *map(str, arguments)]])

    def written():
        return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())

    _, output = end(start([HERE / "several.py", script, json.dumps(groups)]), seconds=seconds, written=written)
    return {name: Written(folder / name, output=output) for name in cases}


def elastic(folder, *arguments, script=TRAIN, **options):
    """A job with the launcher, one process per pod; to be entered."""
    folder.mkdir(exist_ok=True)
    command = ["--", str(script), str(folder), *map(str, arguments)]
    return LocalJob(folder, command=command, checkpoint=False, tree=TREE, **options)


def set_pace(folder, seconds):
    """Set the seconds that each step takes in addition to its work; "hold": until the next call."""
    tell(folder / "pace", seconds)


class Written:
    """The records of a run's processes."""

    def __init__(self, folder, *, output=""):
        self.folder, self.output = folder, output
        files = folder.glob("steps-*.jsonl")
        lines = [line for file in files for line in file.read_text().splitlines() if line.endswith("}")]
        self.lines = [json.loads(line) for line in lines]

    def final(self, name, rank=0):
        """The parameters and buffers of the model at the end."""
        return self.end(rank)["models"][name]

    def end(self, rank=0):
        """The last record of the process with this rank."""
        path = self.folder / f"final-{rank}.pt"
        assert path.exists(), f"{path} was not written\n{self.output}"
        return torch.load(path, weights_only=True)

    def commits(self):
        """Step -> the lines that count: those of the highest generation that committed it."""
        latest = {}
        for line in self.lines:
            latest[line["step"]] = max(latest.get(line["step"], 0), line["generation"])
        chosen = {step: [] for step in sorted(latest)}
        for line in self.lines:
            if line["generation"] == latest[line["step"]]:
                chosen[line["step"]].append(line)
        return chosen

    def losses(self, name):
        """The losses of the global batches, in the order of steps."""
        return [sum(line["losses"][name] for line in lines) for lines in self.commits().values()]

    def worlds(self):
        """The sizes of the run, in order."""
        seen = []
        for lines in self.commits().values():
            if seen[-1:] != [lines[0]["world"]]:
                seen.append(lines[0]["world"])
        return seen

    def repeated(self):
        """Steps that more than one generation committed."""
        generations = Counter(step for step, _ in {(line["step"], line["generation"]) for line in self.lines})
        return [step for step, count in generations.items() if count > 1]


def farthest(one, other, *, only=lambda _name: True):
    """The largest difference of two state_dicts, relative to the largest number of each tensor."""
    assert one.keys() == other.keys()
    distances = [0.0]
    for name in filter(only, one):
        scale = other[name].abs().max().item() or 1.0
        distances.append((one[name] - other[name]).abs().max().item() / scale)
    return max(distances)


def is_parameter(name):
    """Whether the name is no buffer of batch normalization."""
    return "running" not in name and "num_batches" not in name
