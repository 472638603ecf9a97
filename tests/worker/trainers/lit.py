"""lit.py FOLDER LENGTH PAUSE PACKAGE: a Lightning Trainer with the lines that make it elastic."""

import sys
import time
from importlib import import_module
from pathlib import Path

import torch

import elastic_worker as elastic

sys.path.insert(0, str(Path(__file__).parent))
from notes import WIDTH, Notes, Samples

pl = import_module(sys.argv[4])
GLOBAL_BATCH, MICRO_BATCH = 12, 2


class Model(pl.LightningModule):
    def __init__(self, notes, pause):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.notes, self.pause = notes, pause

    def training_step(self, batch, _):
        self.notes.samples += batch["index"].tolist()
        time.sleep(self.pause)
        return (self.layer(batch["values"]) - batch["values"].roll(1, 1)).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


class WriteDown(pl.Callback):
    def __init__(self, notes):
        self.notes, self.step = notes, None

    def on_train_start(self, trainer, _):
        self.step = trainer.global_step

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step != self.step:
            self.step = trainer.global_step
            self.notes.step_done(self.step, trainer.current_epoch)
            trainer.should_stop = self.notes.is_last(self.step)


def main():
    folder, length, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    notes = Notes(folder)
    callback = elastic.LightningCallback(folder / "checkpoints", every_n_steps=15)
    trainer = pl.Trainer(
        callbacks=[WriteDown(notes), callback],
        accelerator="cpu",
        strategy="ddp",
        **elastic.lightning_world(),
        accumulate_grad_batches=elastic.accumulation_steps(GLOBAL_BATCH, MICRO_BATCH),
        max_epochs=10_000,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = torch.utils.data.DataLoader(Samples(length), batch_size=MICRO_BATCH, shuffle=True, num_workers=1)
    trainer.fit(Model(notes, pause), data, ckpt_path=callback.newest())


if __name__ == "__main__":
    main()
