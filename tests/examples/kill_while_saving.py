"""Kills a process that saves checkpoints without a break, again and again; each time the file must load.

Run with a Python that has torch: `kill_while_saving.py FOLDER_OF_TRAIN_PY CHECKPOINT`.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

KILLS = 20
sys.path.insert(0, sys.argv[1])

import torch  # noqa: E402 - the path comes first
import train  # noqa: E402 - the path comes first

MODEL = torch.nn.Linear(1000, 2000)  # 8 MB: most of the time is spent writing
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


def save_for_ever(path: Path) -> None:
    """Never returns."""
    epoch = 0
    while True:
        train.save(path, epoch, MODEL, OPTIMIZER)
        epoch += 1


def main() -> None:
    """Exits 0 if every checkpoint that a killed process left behind is whole."""
    path = Path(sys.argv[2])
    loaded = 0
    for _ in range(KILLS):
        child = os.fork()
        if child == 0:
            save_for_ever(path)
        time.sleep(random.uniform(0.02, 0.2))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        loaded += train.load(path, MODEL, OPTIMIZER, device="cpu") > 0
    print(f"{loaded} checkpoints loaded")
    assert loaded >= KILLS // 2, "the children were killed before they saved anything: nothing was shown"


if __name__ == "__main__":
    main()
