"""`python -m benchmarks.torch`: the same training in each way and size, one after the other, on this machine."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.live.errors import BenchError
from benchmarks.torch import digits, hardware, plot, report, runs
from benchmarks.torch.figures import Row
from benchmarks.torch.hardware import Hardware
from benchmarks.torch.runs import Result
from benchmarks.torch.ways import WAYS, Way, why_not
from devcluster import cache, command_line, torchtree
from devcluster.progress import Progress

SIZES = "1,2,4"
PICTURE = "ways-to-train.svg"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def torch(
    ways: Annotated[str, typer.Option(help="Which, separated by commas.")] = ",".join(WAYS),
    processes: Annotated[str, typer.Option(help="How many, separated by commas.")] = SIZES,
    repeats: Annotated[int, typer.Option("--runs", help="Runs of each training.", min=1)] = 1,
    epochs: Annotated[int, typer.Option(help="Epochs of each training; the first one is not measured.", min=2)] = 6,
    images: Annotated[int, typer.Option(help="Images of an epoch, if there is a GPU.", min=256)] = 12_800,
    page: Annotated[Path | None, typer.Option(help="A page whose figures are renewed, and its picture.")] = None,
) -> None:
    """Images per second of one device, DataParallel, DDP and mixed precision, by hand and in pods, and the library."""
    chosen = [(WAYS[way], size) for way in _chosen(ways, WAYS) for size in _sizes(processes) if _fits(WAYS[way], size)]
    progress, machine = Progress(), hardware.look()
    torchtree.ensure(progress)
    told = f"ResNet-50, noise in the shapes of ImageNet, {images} images an epoch" if machine.gpus else "Digits"
    training = [f"--epochs={epochs}", *_training(machine, images, progress)]
    made: defaultdict[tuple[str, int], list[Result]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="torch-") as folder:
        for number in range(1, repeats + 1):
            for way, size in chosen:
                if not why_not(way, size, machine):
                    place = Path(folder, f"{way.name}-{size}-{number}")
                    made[way.name, size].append(_train(way, size, training, place, machine, progress))
    rows = [Row(way, size, made[way.name, size], why_not(way, size, machine)) for way, size in chosen]
    if not any(row.results for row in rows):
        raise BenchError("none of these ways can be tried here: " + "; ".join(row.reason for row in rows))
    _show(rows, machine, title=told, page=page, progress=progress)


def _show(rows: Sequence[Row], machine: Hardware, *, title: str, page: Path | None, progress: Progress) -> None:
    tables = report.markdown(rows, machine, title=title)
    picture = page.with_name(PICTURE) if page else cache.root() / PICTURE
    picture.write_text(plot.svg_of(rows, machine))
    if page:
        report.renew(page, tables)
    progress.say(f"as a picture: {picture}")
    print(tables)
    print(report.line(rows, machine), flush=True)


def _training(machine: Hardware, images: int, progress: Progress) -> list[str]:
    """Options of the scripts: data and model."""
    if machine.gpus:
        return [f"--images={images}", "--batch-size=256", "--lr=0.1"]
    return [f"--digits={digits.ensure(progress)}", "--width=64", "--batch-size=64", "--lr=0.05"]


def _train(
    way: Way, size: int, arguments: Sequence[str], folder: Path, machine: Hardware, progress: Progress
) -> Result:
    with progress.step(f"{way.title}, {way.started}, {size}"):
        result = runs.train(way, size, arguments, folder=folder, hardware=machine)
    row = Row(way, size, [result])
    progress.say(f"{row.images_per_second:,.0f} images a second, accuracy {row.accuracy:.1%}")
    return result


def _fits(way: Way, size: int) -> bool:
    return way.fewest <= size <= way.most


def _chosen(names: str, known: Collection[str]) -> list[str]:
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise BenchError(f"there is no way {name!r}; there are {', '.join(known)}")
    return chosen


def _sizes(numbers: str) -> list[int]:
    parts = [part.strip() for part in numbers.split(",") if part.strip()]
    if not all(part.isdigit() and int(part) for part in parts):
        raise BenchError(f"--processes is {numbers!r}: write numbers, such as {SIZES}")
    return [int(part) for part in parts]


if __name__ == "__main__":
    command_line.run(app, program="bench")
