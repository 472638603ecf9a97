"""A Hugging Face Trainer in the form of transformers' run_clm.py, with a model made from a configuration."""

import time
from pathlib import Path

import torch
from notes import Notes
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

FOLDER, SAVE_STEPS = Path("checkpoints"), 10


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        words = torch.arange(index, index + 8) % 32
        return {"input_ids": words, "labels": words}


class WriteDown(TrainerCallback):
    def __init__(self):
        self.notes = Notes(".")

    def on_step_end(self, _args, state, control, **_):
        time.sleep(0.03)
        self.notes.step_done(state.global_step, state.global_step // 5)
        control.should_training_stop = self.notes.is_last(state.global_step)


def main():
    args = TrainingArguments(
        output_dir=str(FOLDER),
        per_device_train_batch_size=2,
        max_steps=100_000,
        save_steps=SAVE_STEPS,
        save_total_limit=3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    trainer = Trainer(GPT2LMHeadModel(config), args, train_dataset=Text(), callbacks=[WriteDown()])
    last = get_last_checkpoint(FOLDER) if FOLDER.exists() else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
