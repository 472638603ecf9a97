# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The measured script: a small network in half precision, with plain DDP or with the library.

    train.py FOLDER [--library] [--backend nccl] [--pause 0.02]

After each step it writes a line to FOLDER/steps-POD.jsonl (for benchmarks.rescale.steps), and after every tenth one to
FOLDER/seen-POD.jsonl: loss, MiB of this process, MiB in use on its card by all processes (0 on a CPU).
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 1024
MICRO_BATCH, GLOBAL_BATCH = 64, 256
SAVE_STEPS, LOOK_STEPS = 50, 10
MIB = 1 << 20


def main() -> None:
    options = parse_options()
    torch.manual_seed(0)
    with Log(options.folder) as log:
        train = with_the_library if options.library else with_plain_ddp
        train(options, log)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--library", action="store_true")
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds of pretended work per step")
    return parser.parse_args()


class Log:
    """The records of a pod's processes, one after the other."""

    def __init__(self, folder: Path) -> None:
        pod = os.environ["BENCH_POD"]
        # Pids are the container's, and repeat in the next one.
        self._process = time.monotonic_ns()
        self._steps, self._seen = (
            (folder / f"{kind}-{pod}.jsonl").open("a", buffering=1) for kind in ("steps", "seen")
        )

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self._steps.close()
        self._seen.close()

    def write(self, loss: torch.Tensor, *, step: int, **more: int) -> None:
        """Write one step that counted."""
        now = {"time": time.monotonic(), "step": step}
        self._steps.write(json.dumps({**now, "process": self._process, **more}) + "\n")
        if step % LOOK_STEPS == 0:
            self._seen.write(json.dumps({**now, "loss": loss.item(), **memory(loss.device)}) + "\n")


def memory(device: torch.device) -> dict[str, float]:
    """The memory of this process and of its card in MiB."""
    if device.type == "cpu":
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {"process": round(pages * os.sysconf("SC_PAGE_SIZE") / MIB, 1), "card": 0.0}
    free, total = torch.cuda.mem_get_info(device)
    return {"process": round(torch.cuda.max_memory_reserved(device) / MIB, 1), "card": round((total - free) / MIB, 1)}


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))


def samples(device: torch.device) -> torch.Tensor:
    return torch.randn(GLOBAL_BATCH, WIDTH, generator=torch.Generator().manual_seed(1)).to(device)


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """The loss in half precision; the model learns the mean of each row."""
    kind = torch.float16 if rows.is_cuda else torch.bfloat16
    with torch.autocast(rows.device.type, dtype=kind):
        found = model(rows).squeeze(1)
    return nn.functional.mse_loss(found.float(), rows.mean(1))


def scaler(device: torch.device) -> Any:
    return torch.amp.GradScaler(device.type, enabled=device.type == "cuda")


def with_plain_ddp(options: argparse.Namespace, log: Log) -> None:
    """Train with a checkpoint every few steps, from which a new process resumes."""
    dist.init_process_group(options.backend)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    model = DistributedDataParallel(network().to(device))
    optimizer, scales, rows = torch.optim.AdamW(model.parameters(), lr=1e-4), scaler(device), samples(device)
    saved = options.folder / "checkpoint.pt"
    parts = {"model": model, "optimizer": optimizer, "scaler": scales}
    step = load(saved, parts, device)
    while True:
        step += 1
        optimizer.zero_grad()
        mine = rows[dist.get_rank() :: dist.get_world_size()]
        loss = loss_of(model, mine)
        scales.scale(loss).backward()
        scales.step(optimizer)
        scales.update()
        time.sleep(options.pause)
        log.write(loss.detach(), step=step, rank=dist.get_rank(), world=dist.get_world_size())
        if step % SAVE_STEPS == 0 and dist.get_rank() == 0:
            save(saved, parts, step)


def load(saved: Path, parts: dict[str, Any], device: torch.device) -> int:
    """Load the checkpoint; return the number of done steps."""
    if not saved.exists():
        return 0
    state = torch.load(saved, map_location=device)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return int(state["step"])


def save(saved: Path, parts: dict[str, Any], step: int) -> None:
    unfinished = saved.with_suffix(".tmp")
    torch.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}}, unfinished)
    unfinished.replace(saved)


def with_the_library(options: argparse.Namespace, log: Log) -> None:
    import elastic_worker as elastic

    job = elastic.init(checkpoints=options.folder / "checkpoints", backend=options.backend)
    model = job.wrap(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = elastic.Sampler(GLOBAL_BATCH * SAVE_STEPS, global_batch=GLOBAL_BATCH, micro_batch=MICRO_BATCH)
    more = {"scaler": scaler(job.device)} if job.device.type == "cuda" else {}
    state = job.state(model=model, optimizer=optimizer, data=data, **more)
    job.restore(state)
    rows = samples(job.device)
    step_of: Callable[..., Any] = job.step
    for _ in job.epochs(1_000_000):
        for batch in job.batches(state.data):
            with step_of(state) as step:
                for micro in batch.micro:
                    loss = loss_of(model, rows[[index % GLOBAL_BATCH for index in micro.indices]])
                    step.backward(loss * micro.weight)
                time.sleep(options.pause)
                step.update()
            if step.committed:
                where = {"rank": job.rank, "world": job.world_size, "generation": job.generation}
                log.write(loss.detach(), step=job.step_count, **where)
        job.checkpoint(state)


if __name__ == "__main__":
    main()
