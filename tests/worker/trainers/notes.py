"""The records of these training scripts: a line of JSON per step, as LocalJob reads them."""

import json
import os
import time
from pathlib import Path

import torch

WIDTH = 4


class Notes:
    """The records of one process, in FOLDER/steps-POD-LOCAL_RANK.jsonl. A step fills `samples`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        name = f"steps-{os.environ.get('ELASTIC_POD_NAME', 'alone')}-{os.environ.get('LOCAL_RANK', '0')}.jsonl"
        self.log = (self.folder / name).open("a", buffering=1)
        self.samples = []

    def step_done(self, step, epoch):
        """One line."""
        line = {
            "time": time.monotonic(),
            "master": int(os.environ.get("ELASTIC_MASTER_EPOCH", "0")),
            "generation": int(os.environ.get("ELASTIC_GENERATION", "0")),
            "pid": os.getpid(),
            "pod": os.environ.get("ELASTIC_POD_UID", ""),
            "rank": int(os.environ.get("RANK", "0")),
            "world": int(os.environ.get("WORLD_SIZE", "1")),
            "epoch": epoch,
            "step": step,
            "samples": self.samples,
        }
        self.log.write(json.dumps(line) + "\n")
        self.samples = []

    def is_last(self, step):
        """Whether to stop after that step, which the test may have named as the last."""
        path = self.folder / "last-step"
        return path.exists() and step >= int(path.read_text())


class Samples(torch.utils.data.Dataset):
    """Samples that contain their own index."""

    def __init__(self, length):
        self.values = torch.randn(length, WIDTH, generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return {"values": self.values[index], "index": index}
