"""unchanged.py FOLDER LENGTH PAUSE STEPS: a Hugging Face Trainer that knows nothing of elastic jobs."""

import sys
import time
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments

sys.path.insert(0, str(Path(__file__).parent))
from notes import WIDTH, Samples


class Model(torch.nn.Module):
    def __init__(self, pause):
        super().__init__()
        self.layer, self.pause = torch.nn.Linear(WIDTH, WIDTH), pause

    def forward(self, values, index):  # noqa: ARG002 - the Trainer passes it by name
        time.sleep(self.pause)
        return {"loss": (self.layer(values) - values.roll(1, 1)).square().mean()}


def main():
    folder, length, pause, steps = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    args = TrainingArguments(
        output_dir=str(folder / "output"),
        per_device_train_batch_size=2,
        max_steps=steps,
        save_strategy="no",
        logging_steps=5,
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    Trainer(Model(pause), args, train_dataset=Samples(length)).train()


if __name__ == "__main__":
    main()
