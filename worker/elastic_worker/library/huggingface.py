"""A Hugging Face Trainer as an elastic job: `trainer.add_callback(elastic.HuggingFaceCallback())`.

    args = TrainingArguments(output_dir, per_device_train_batch_size=8,
                             gradient_accumulation_steps=elastic.accumulation_steps(96, 8))
    trainer = Trainer(model, args, train_dataset=data)
    trainer.add_callback(elastic.HuggingFaceCallback())
    trainer.train(resume_from_checkpoint=elastic.latest_checkpoint(args.output_dir))

A planned change costs no step: all ranks save after the same one, the script starts again, the Trainer resumes. After a
loss it resumes from the newest checkpoint that it wrote itself (`save_steps`). Without our launcher the callback does
nothing. `output_dir` must be a folder that all pods see.

Exact: model, optimizer, scheduler and `global_step` are unchanged. The Trainer finds its place in the data by counting
steps: it skips `global_step % steps of an epoch` of the same shuffled order. With `accumulation_steps` a step has as
many samples in any world: each sample then comes once in an epoch, also across changes within the epoch, if a multiple
of the global batch fills the epoch. Not exact: without that line a step has more or fewer samples in another world, and
`num_train_epochs` is recounted in steps of the present world: samples come again or not at all, and training may end
early or late; give `max_steps` then. Dropout and other random numbers continue for the ranks that existed when the
checkpoint was written; further ranks begin with the seed. `ignore_data_skip` restarts the epoch. A data set without a
length, FSDP and DeepSpeed were not tried.
"""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from elastic_worker.library.trainers import TrainerLine

STATE_FILE = "trainer_state.json"
"""The Trainer writes it last."""
TrainerCallback: Any = import_module("transformers").TrainerCallback


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]
    """The callback for a Trainer.

    Raises ValueError at the start if the training does not resume although there is a checkpoint, or if its checkpoints
    can never be resumed from (`save_only_model`).
    """

    def __init__(self) -> None:
        self._line = TrainerLine()
        self._loss: Any = None
        self._together = False

    def on_train_begin(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Begin the elastic part: all ranks are present and the checkpoint is loaded."""
        if getattr(args, "save_only_model", False):
            raise ValueError("save_only_model=True: an elastic job resumes from its checkpoints, leave it out")
        remedy = "call trainer.train(resume_from_checkpoint=elastic.latest_checkpoint(args.output_dir))"
        self._line.begin(step=state.global_step, newest=latest_checkpoint(args.output_dir), remedy=remedy)

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Pass a boundary after the optimizer's step. The Trainer saves next if `should_save` is set."""
        self._line.report(step=state.global_step, epoch=state.epoch, loss=self._loss, steps=state.max_steps)
        is_over = state.global_step >= state.max_steps or control.should_training_stop
        if not is_over and self._line.boundary():
            self._together = control.should_save = True
        return control

    def on_save(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Report the checkpoint, on each rank, after the Trainer has written its last file."""
        if state.is_world_process_zero:
            self._line.saved(state.global_step)
        if self._together:
            self._line.saved_together(state.global_step)

    def on_log(self, *_: Any, logs: Any = None, **__: Any) -> None:
        """Report the mean loss since the last log."""
        self._loss = (logs or {}).get("loss", self._loss)


def latest_checkpoint(folder: str | Path) -> str | None:
    """The newest complete `checkpoint-N`; None if there is none. Incomplete ones are skipped.

    A checkpoint is complete if its `trainer_state.json` is whole, since the Trainer writes that last.
    """
    found = [(int(match[1]), path) for path in Path(folder).glob("checkpoint-*") if (match := _numbered(path))]
    whole = (str(path) for step, path in sorted(found, reverse=True) if _step_of(path) == step)
    return next(whole, None)


def _numbered(path: Path) -> re.Match[str] | None:
    return re.fullmatch(r"checkpoint-(\d+)", path.name)


def _step_of(path: Path) -> int | None:
    try:
        step = json.loads((path / STATE_FILE).read_text())["global_step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None
