"""`make gpu-report`: measures elastic training on the GPUs of this machine, in about ten minutes."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.gpu import machine as machines
from benchmarks.gpu import report, stories
from benchmarks.gpu.systems import systems_of
from benchmarks.live.errors import BenchError
from devcluster import command_line
from devcluster.progress import Progress

DEVICES = ("auto", "cuda", "cpu")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def gpu(
    python: Annotated[str, typer.Option(help="A python that has torch.")] = "python3",
    device: Annotated[str, typer.Option(help="auto, cuda, or cpu: the same stories with gloo.")] = "auto",
    systems: Annotated[str, typer.Option(help="Which, separated by commas; all if empty.")] = "",
    seconds: Annotated[float, typer.Option(help="The limit of one change.", min=1)] = stories.SECONDS,
    out: Annotated[Path, typer.Option(help="The folder for gpu-report.json and gpu-report.md.")] = Path(),
) -> None:
    """Plain DDP in both modes, and the library: a pod joins, leaves, joins again, is killed; AMP and memory."""
    if device not in DEVICES:
        raise BenchError(f"there is no device {device!r}; there are {', '.join(DEVICES)}")
    progress, machine = Progress(), machines.look(python, device)
    known = {system.name: system for system in systems_of(machine)}
    wanted = [name.strip() for name in systems.split(",") if name.strip()] or list(known)
    if unknown := [name for name in wanted if name not in known]:
        raise BenchError(f"there is no system {unknown[0]!r} here; there are {', '.join(known)}")
    told = {}
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        for name in wanted:
            with progress.step(f"{known[name].words}, {machine.most - 1} to {machine.most} ranks"):
                told[name] = stories.tell(known[name], machine, Path(folder) / name, seconds=seconds).as_dict()
            if told[name]["error"]:
                progress.say(told[name]["error"])
    made = report.as_json(machine, told, made=datetime.now(UTC).isoformat(timespec="seconds"))
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu-report.json").write_text(json.dumps(made, indent=1) + "\n")
    (out / "gpu-report.md").write_text(report.as_markdown(made))
    print(report.as_markdown(made), end="")


if __name__ == "__main__":
    command_line.run(app, program="gpu-report")
