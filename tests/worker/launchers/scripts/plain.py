"""A loop of one's own, in the form of torch's DDP examples: it saves every ten steps, and goes on from there."""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from notes import Notes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAVED, SAVE_STEPS = Path("checkpoint.pt"), 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    local_rank = parser.parse_args().local_rank
    assert local_rank in (-1, int(os.environ["LOCAL_RANK"])), local_rank
    print("runs in", sys.prefix)
    dist.init_process_group("gloo")
    notes = Notes(".")
    model = DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    if SAVED.exists():
        saved = torch.load(SAVED)
        step = saved["step"]
        model.module.load_state_dict(saved["model"])
    while not notes.is_last(step):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.03)
        step += 1
        notes.step_done(step, step // 5)
        if step % SAVE_STEPS == 0 and dist.get_rank() == 0:
            torch.save({"step": step, "model": model.module.state_dict()}, "unfinished")
            Path("unfinished").replace(SAVED)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
