"""A Lightning Trainer with its own checkpoints, as its pages show it; the number of nodes is the group's."""

import os
import signal
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from notes import Notes, Samples

FOLDER, SAVE_STEPS = Path("checkpoints"), 10


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def training_step(self, batch, _):
        time.sleep(0.03)
        return self.layer(batch["values"]).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class WriteDown(pl.Callback):
    def __init__(self):
        self.notes = Notes(".")

    def on_train_start(self, *_):
        # Lightning's own handler waits for the other ranks: each planned change would take 30 s longer.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_train_batch_end(self, trainer, *_):
        self.notes.step_done(trainer.global_step, trainer.global_step // 5)
        trainer.should_stop = self.notes.is_last(trainer.global_step)


def main():
    trainer = pl.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        max_epochs=10_000,
        callbacks=[WriteDown(), ModelCheckpoint(FOLDER, every_n_train_steps=SAVE_STEPS, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = FOLDER / "last.ckpt"
    data = torch.utils.data.DataLoader(Samples(240), batch_size=4, shuffle=True)
    trainer.fit(Model(), data, ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
