"""A Hugging Face Trainer with a tiny GPT-2 that is made here: no model hub, no data set, no network is needed.

It learns to count: each sequence goes on by one from a random start. Started again, on any number of machines, it
resumes from its newest complete checkpoint.

    torchrun --standalone --nproc-per-node=2 train.py --steps 10
"""

import argparse
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

WORDS, LENGTH, SEQUENCES = 64, 16, 2048


class Tell(TrainerCallback):
    """Prints a line after each step, and pretends some work."""

    def __init__(self, pause):
        self.pause = pause

    def on_step_end(self, args, state, _control, **_):
        """Called by the Trainer, on each rank."""
        if state.is_world_process_zero:
            print(f"step {state.global_step} on {args.world_size} processes", flush=True)
        time.sleep(self.pause)


def main():
    """Train, and resume where there is something to resume from."""
    options = parse_options()
    args = TrainingArguments(
        output_dir=str(options.checkpoints),
        per_device_train_batch_size=8,
        max_steps=options.steps,  # of any number of processes; epochs would be counted anew by each
        save_steps=5,
        save_total_limit=2,
        logging_steps=10,
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),  # without a GPU it forms no group else
    )
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    trainer = Trainer(GPT2LMHeadModel(config), args, train_dataset=make_data(), callbacks=[Tell(options.pause)])
    trainer.train(resume_from_checkpoint=newest(options.checkpoints))


def parse_options():
    """What may be changed from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds of pretended work per step")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="a folder that all machines see")
    return parser.parse_args()


def make_data():
    """The same sequences in each process."""
    starts = torch.randint(WORDS, (SEQUENCES, 1), generator=torch.Generator().manual_seed(1))
    sequences = (starts + torch.arange(LENGTH)) % WORDS
    return [{"input_ids": sequence, "labels": sequence} for sequence in sequences]


def newest(folder):
    """The newest checkpoint that is complete: the Trainer writes trainer_state.json last. None if there is none."""
    whole = [path.parent for path in folder.glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.removeprefix("checkpoint-")), default=None)


if __name__ == "__main__":
    main()
