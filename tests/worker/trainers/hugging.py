"""hugging.py FOLDER LENGTH PAUSE: a Hugging Face Trainer with the lines that make it elastic."""

import sys
import time
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import elastic_worker as elastic

sys.path.insert(0, str(Path(__file__).parent))
from notes import WIDTH, Notes, Samples

GLOBAL_BATCH, MICRO_BATCH = 12, 2


class Model(torch.nn.Module):
    def __init__(self, notes, pause):
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, WIDTH)
        self.notes, self.pause = notes, pause

    def forward(self, values, index):
        self.notes.samples += index.tolist()
        time.sleep(self.pause)
        return {"loss": (self.layer(values) - values.roll(1, 1)).square().mean()}


class WriteDown(TrainerCallback):
    def __init__(self, notes):
        self.notes = notes

    def on_step_end(self, _args, state, control, **_):
        self.notes.step_done(state.global_step, state.epoch)
        control.should_training_stop = self.notes.is_last(state.global_step)


def main():
    folder, length, pause = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    notes = Notes(folder)
    args = TrainingArguments(
        output_dir=str(folder / "output"),
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=elastic.accumulation_steps(GLOBAL_BATCH, MICRO_BATCH),
        max_steps=100_000,
        save_steps=15,
        logging_steps=20,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    trainer = Trainer(Model(notes, pause), args, train_dataset=Samples(length), callbacks=[WriteDown(notes)])
    trainer.add_callback(elastic.HuggingFaceCallback())
    trainer.train(resume_from_checkpoint=elastic.latest_checkpoint(args.output_dir))


if __name__ == "__main__":
    main()
