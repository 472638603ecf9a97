"""In the form of accelerate's examples/by_feature/checkpointing.py."""

import time
from pathlib import Path

import torch
from accelerate import Accelerator
from notes import Notes, Samples
from torch import nn

FOLDER, SAVE_STEPS = Path("checkpoints"), 10


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, values):
        return self.layer(values).square().mean()


def main():
    accelerator = Accelerator(cpu=True)
    notes = Notes(".")
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Samples(240), batch_size=4, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    saved = sorted(FOLDER.glob("step_*/complete"), key=lambda path: int(path.parent.name.removeprefix("step_")))
    step = 0
    if saved:
        accelerator.load_state(saved[-1].parent)
        step = int(saved[-1].parent.name.removeprefix("step_"))
    while not notes.is_last(step):
        for batch in loader:
            if notes.is_last(step):
                break
            accelerator.backward(model(batch["values"]))
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.03)
            step += 1
            notes.step_done(step, step // 5)
            if step % SAVE_STEPS == 0:
                folder = FOLDER / f"step_{step}"
                accelerator.save_state(folder)
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    (folder / "complete").touch()
    accelerator.end_training()


if __name__ == "__main__":
    main()
