"""In the form of Lightning's examples of Fabric, for `fabric run`: the command says all about the group."""

import time
from pathlib import Path

import torch
from lightning.fabric import Fabric
from notes import Notes

SAVED, SAVE_STEPS = Path("checkpoint.pt"), 10


def main():
    fabric = Fabric()
    notes = Notes(".")
    model = torch.nn.Linear(4, 4)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
    state = {"model": model, "optimizer": optimizer, "step": 0}
    if SAVED.exists():
        fabric.load(SAVED, state)
    while not notes.is_last(state["step"]):
        optimizer.zero_grad()
        fabric.backward(model(torch.randn(4, 4)).square().mean())
        optimizer.step()
        time.sleep(0.03)
        state["step"] += 1
        notes.step_done(state["step"], state["step"] // 5)
        if state["step"] % SAVE_STEPS == 0:
            fabric.save("unfinished", state)
            if fabric.global_rank == 0:
                Path("unfinished").replace(SAVED)


if __name__ == "__main__":
    main()
