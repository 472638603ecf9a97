"""A plain training script for the tests of Elastic mode: it knows nothing of us, and writes down what it does.

    train.py FOLDER [--checkpoint FILE] [--steps 5] [--pause 0.05]

Some steps with pauses are an epoch, and after each epoch rank 0 saves its number. Each process appends a line of JSON
per step to FOLDER/steps-POD_UID.jsonl. Files in FOLDER say what is to happen: `enough` ends the training well,
`fail-RANK` makes that rank fail.
"""

import argparse
import io
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--steps", type=int, default=5, help="of an epoch")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds in each step")
    options = parser.parse_args()
    checkpoint = options.checkpoint or options.folder / "checkpoint.pt"
    dist.init_process_group("gloo")
    model = nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parallel = DistributedDataParallel(model)
    epoch = torch.load(checkpoint)["epoch"] + 1 if checkpoint.exists() else 0
    with (options.folder / f"steps-{os.environ['ELASTIC_POD_UID']}.jsonl").open("a", buffering=1) as log:
        while goes_on(options.folder):
            for step in range(options.steps):
                if (options.folder / f"fail-{dist.get_rank()}").exists():
                    raise ValueError(f"the loss is NaN in epoch {epoch}")
                optimizer.zero_grad()
                parallel(torch.randn(4, 32)).sum().backward()
                optimizer.step()
                time.sleep(options.pause)
                log.write(json.dumps(line(epoch, step)) + "\n")
            if dist.get_rank() == 0:
                save(checkpoint, epoch, model)
            epoch += 1
    dist.destroy_process_group()


def goes_on(folder):
    """Whether another epoch is wanted; all ranks hear the same."""
    wanted = torch.tensor([not (folder / "enough").exists()], dtype=torch.int32)
    dist.broadcast(wanted, 0)
    return bool(wanted.item())


def save(path, epoch, model):
    """Under another name first: it is there whole or not at all."""
    unfinished = path.with_name(f"{path.name}.{os.environ['ELASTIC_POD_UID']}")
    content = io.BytesIO()
    torch.save({"epoch": epoch, "model": model.state_dict()}, content)
    unfinished.write_bytes(content.getvalue())
    unfinished.replace(path)


def line(epoch, step):
    return {
        "time": time.monotonic(),
        "pod": os.environ["ELASTIC_POD_NAME"],
        "uid": os.environ["ELASTIC_POD_UID"],
        "master_epoch": int(os.environ["ELASTIC_MASTER_EPOCH"]),
        "generation": int(os.environ["ELASTIC_GENERATION"]),
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "epoch": epoch,
        "step": step,
    }


if __name__ == "__main__":
    main()
