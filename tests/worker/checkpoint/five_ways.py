"""Five ways in which scripts save, without torch: each writes in pieces, and each checkpoint can be read back.

Every file of a checkpoint names its step. A checkpoint is torn if one of its files is missing, incomplete, or of
another step.
"""

import io
import itertools
import json
import os
import pickle
import random
import struct
import time
import zipfile
from pathlib import Path

SIZE = 20_000
PIECES = 6
PAUSE_SECONDS = 0.002
"""The longest pause between two pieces or files; between two checkpoints it is ten times as long."""


class TornError(Exception):
    """A checkpoint from which a script could not continue."""


def archive(step):
    """A file as of torch.save: the table of contents comes last."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(step))
        file.writestr("archive/data/0", os.urandom(SIZE))
    return buffer.getvalue()


def tensors(step):
    """A file of safetensors: a header with the length of the rest."""
    header = {"__metadata__": {"step": str(step)}, "w": {"dtype": "U8", "shape": [SIZE], "data_offsets": [0, SIZE]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + os.urandom(SIZE)


def read_archive(path):
    """The step of the file, which is read completely. Raises TornError."""
    try:
        with zipfile.ZipFile(path) as file:
            if file.testzip() is not None:
                raise TornError(path)
            return pickle.loads(file.read("archive/data.pkl"))
    except (OSError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise TornError(path) from error


def read_tensors(path):
    content = path.read_bytes() if path.exists() else b""
    length = int.from_bytes(content[:8], "little")
    if len(content) != 8 + length + SIZE:
        raise TornError(path)
    return int(json.loads(content[8 : 8 + length])["__metadata__"]["step"])


def read_text(path, step):
    if not path.exists() or path.read_text() != step:
        raise TornError(path)


class Writer:
    """Writes in pieces, short content in one, with random pauses."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pause(self, times=1):
        time.sleep(self.random.uniform(0, times * PAUSE_SECONDS))

    def write(self, path, content):
        length = max(100, -(-len(content) // PIECES))
        with path.open("wb", buffering=0) as file:
            for start in range(0, len(content), length):
                self.pause()
                file.write(content[start : start + length])
        self.pause()


class PlainFile:
    """One file, written in place."""

    path = "ckpt.pt"

    def next_step(self, _root):
        return 1

    def save(self, writer, root, step):
        writer.write(root / self.path, archive(step))

    def read(self, root):
        return read_archive(root / self.path)


class Renamed(PlainFile):
    """One file, written under another name and renamed."""

    def save(self, writer, root, step):
        unfinished = root / f"{self.path}.tmp"
        writer.write(unfinished, archive(step))
        unfinished.replace(root / self.path)


class Folders:
    """A folder for each checkpoint; the two newest are kept."""

    path = "out"
    name = ""

    def next_step(self, root):
        """The step after those of all existing folders, complete or not."""
        return max((number(folder) for folder in (root / self.path).glob(self.name.format("*"))), default=0) + 1

    def save(self, writer, root, step):
        folder = root / self.path / self.name.format(step)
        folder.mkdir(parents=True)
        self.save_into(writer, folder, step)
        for other in sorted((root / self.path).glob(self.name.format("*")), key=number)[:-2]:
            for file in other.iterdir():
                file.unlink()
            other.rmdir()

    def newest(self, root, marker):
        """The newest folder with the marker, from which scripts would continue. Raises TornError if there is none."""
        marked = [file.parent for file in (root / self.path).glob(f"{self.name.format('*')}/{marker}")]
        if not marked:
            raise TornError(root)
        return max(marked, key=number)


def number(folder):
    return int("".join(itertools.filterfalse(str.isalpha, folder.name)).strip("-_"))


class TrainerState(Folders):
    """Hugging Face's trainer: trainer_state.json comes last."""

    name = "checkpoint-{}"

    def save_into(self, writer, folder, step):
        writer.write(folder / "model.safetensors", tensors(step))
        writer.write(folder / "training_args.bin", archive(step))
        writer.write(folder / "optimizer.pt", archive(step))
        writer.write(folder / "trainer_state.json", json.dumps({"global_step": step}).encode())

    def read(self, root):
        folder = self.newest(root, "trainer_state.json")
        step = number(folder)
        read_text(folder / "trainer_state.json", json.dumps({"global_step": step}))
        parts = {
            read_tensors(folder / "model.safetensors"),
            *(read_archive(folder / name) for name in ("training_args.bin", "optimizer.pt")),
        }
        return same(parts, step)


class Latest(Folders):
    """DeepSpeed: the file `latest` names the newest folder, and comes last."""

    name = "global_step{}"
    parts = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt")

    def save_into(self, writer, folder, step):
        for part in self.parts:
            writer.write(folder / part, archive(step))
        writer.write(folder.parent / "latest", folder.name.encode())

    def read(self, root):
        latest = root / self.path / "latest"
        folder = root / self.path / (latest.read_text() if latest.exists() else "")
        if not folder.name.startswith("global_step"):
            raise TornError(latest)
        return same({read_archive(folder / part) for part in self.parts}, number(folder))


class Metadata(Folders):
    """torch.distributed.checkpoint: each rank has its part; .metadata comes last, under its name at once."""

    name = "step-{}"

    def save_into(self, writer, folder, step):
        for rank in range(2):
            writer.write(folder / f"__{rank}_0.distcp", archive(step))
        unfinished = folder / ".metadata.tmp"
        writer.write(unfinished, pickle.dumps(step))
        unfinished.rename(folder / ".metadata")

    def read(self, root):
        folder = self.newest(root, ".metadata")
        step = pickle.loads((folder / ".metadata").read_bytes())
        return same({read_archive(folder / f"__{rank}_0.distcp") for rank in range(2)}, step)


WAYS = {
    "plain file": PlainFile(),
    "renamed": Renamed(),
    "trainer_state.json": TrainerState(),
    "latest": Latest(),
    ".metadata": Metadata(),
}


def same(steps, step):
    if steps != {step}:
        raise TornError(f"{steps} in a checkpoint of step {step}")
    return step


def save_forever(way, root, seed):
    """Save one checkpoint after the other."""
    writer, root = Writer(seed), Path(root)
    for step in itertools.count(WAYS[way].next_step(root)):
        WAYS[way].save(writer, root, step)
        writer.pause(10)
