# mypy: disable-error-code="import-not-found, no-untyped-call, no-any-return"
"""The common part of the scripts beside this one: command line, data, model, an epoch, evaluation, checkpoints.

With --digits FILE (rows of 64 pixels and a label, separated by commas) a small network learns scikit-learn's digits.
Without it ResNet-50 sees noise in the shapes of ImageNet. --batch-size counts the images of all processes, and one
epoch's global batches are the same for any number of processes: so all scripts learn the same up to rounding errors,
which --double makes so small that the learnt models can be compared. (The library shuffles in another order.)
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy
import resnet
import torch
from journal import Journal
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

CLASSES, COLOURS = 1000, 3
DIGITS = 10
TESTED_DIGITS = 397
"""The training images of the 1,797: a prime number, so no number of processes divides it."""
WORKERS = 2
"""Processes of each DataLoader."""


def parse_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--digits", type=Path, help="a file of digits; without it: noise in the shapes of ImageNet")
    parser.add_argument("--width", type=int, default=32, help="channels of the digits' network")
    parser.add_argument("--images", type=int, default=12_800, help="of noise, in an epoch")
    parser.add_argument("--tests", type=int, default=1000, help="images of noise, to evaluate with")
    parser.add_argument("--image-size", type=int, default=224, help="height and width of noise, in pixels")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=256, help="images per step, all processes together")
    parser.add_argument("--lr", type=float, default=0.1)
    precision = parser.add_mutually_exclusive_group()
    precision.add_argument("--amp", action="store_true", help="mixed precision")
    precision.add_argument("--double", action="store_true", help="64 bits, so that results can be compared")
    parser.add_argument("--processes", type=int, default=1, help="where nobody else says how many there are")
    parser.add_argument("--checkpoint", type=Path, help="to go on from, and to save to after each epoch")
    parser.add_argument("--journal", type=Path, default=Path(), help="a folder for what each process has measured")
    return prepared(parser.parse_args())


def prepared(options: argparse.Namespace) -> argparse.Namespace:
    """Set the process up by the options, and return these."""
    torch.set_default_dtype(torch.float64 if options.double else torch.float32)
    return options


def backend() -> str:
    """The backend of the process group."""
    return "nccl" if torch.cuda.is_available() else "gloo"


def device_of(local_rank: int) -> torch.device:
    """The device of the process with that number on this machine."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


class Noise(Dataset):  # type: ignore[misc]
    """Colours x `size` x `size`, each another window of the same noise, so that random numbers cost no time."""

    def __init__(self, images: int, size: int) -> None:
        random = torch.Generator().manual_seed(0)
        self.shape, self.pixels = (COLOURS, size, size), COLOURS * size * size
        self.noise = torch.randn(self.pixels + images, generator=random)
        self.labels = torch.randint(CLASSES, (images,), generator=random)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.noise[index : index + self.pixels].view(self.shape), self.labels[index]


def make_data(options: argparse.Namespace) -> tuple[Dataset, Dataset]:
    """The training data and the test data."""
    if options.digits is None:
        return Noise(options.images, options.image_size), Noise(options.tests, options.image_size)
    rows = torch.from_numpy(numpy.loadtxt(options.digits, delimiter=",", dtype=numpy.float32))
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
    digits = TensorDataset(rows[:, :-1].reshape(-1, 1, 8, 8).to(torch.get_default_dtype()) / 16, rows[:, -1].long())
    trained = len(rows) - TESTED_DIGITS
    return Subset(digits, range(trained)), Subset(digits, range(trained, len(rows)))


def make_model(options: argparse.Namespace) -> nn.Module:
    """The same weights in each process."""
    torch.manual_seed(0)
    if options.digits is None:
        return resnet.resnet50(CLASSES)
    width = options.width
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * width, 128),
        nn.ReLU(),
        nn.Linear(128, DIGITS),
    )


def make_optimizer(model: nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    """The optimizer of the reference script."""
    return torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)


def make_loader(dataset: Dataset, batch_size: int, **more: Any) -> DataLoader:
    """A loader whose workers stay for all epochs. In a process of mp.spawn they would be spawned, and import torch."""
    workers: dict[str, Any] = {"num_workers": WORKERS, "persistent_workers": True, "multiprocessing_context": "fork"}
    return DataLoader(dataset, batch_size, pin_memory=torch.cuda.is_available(), **workers, **more)


def fit(model: nn.Module, options: argparse.Namespace, *, device: torch.device) -> None:
    """Train, evaluate and save, epoch by epoch, in this process and its peers, if there are any."""
    together = dist.is_initialized()
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    trained, tested = make_data(options)
    batch_size = options.batch_size // world_size
    sampler = DistributedSampler(trained, world_size, rank)
    batches = make_loader(trained, batch_size, sampler=sampler, drop_last=True)
    # A DistributedSampler would give out some images twice, and they would be counted twice.
    tests = make_loader(Subset(tested, range(rank, len(tested), world_size)), batch_size)
    optimizer = make_optimizer(model, options)
    scaler = torch.amp.GradScaler(device.type, enabled=options.amp and device.type == "cuda")
    first_epoch = load(options.checkpoint, model, optimizer, scaler, device=device)
    journal = Journal(options.journal, rank=rank, world_size=world_size, model=model)
    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)
        with journal.epoch(images=len(batches) * batch_size * world_size):
            train_epoch(model, batches, optimizer, scaler, device=device, amp=options.amp)
        share_buffers(model)
        counts = evaluate(model, tests, device=device, amp=options.amp)
        if together:
            journal.counts["reduce"] = add_up_on_rank_0(counts)
            counts = add_up_everywhere(counts)
        journal.counts["all-reduce" if together else "one device"] = counts.tolist()
        if rank == 0:
            save(options.checkpoint, epoch, model, optimizer, scaler)
            say(epoch, world_size, counts)
    if rank == 0:
        alone = evaluate(model, make_loader(tested, batch_size), device=device, amp=options.amp)
        journal.counts["one device"] = alone.tolist()
    journal.write()


def train_epoch(
    model: nn.Module,
    batches: DataLoader,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    *,
    device: torch.device,
    amp: bool,
) -> None:
    """All steps of one epoch."""
    model.train()
    for images, labels in batches:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device.type, enabled=amp):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()  # the processes average their gradients here
        scaler.step(optimizer)
        scaler.update()


@torch.no_grad()  # type: ignore[untyped-decorator]
def evaluate(model: nn.Module, batches: DataLoader, *, device: torch.device, amp: bool) -> torch.Tensor:
    """Three sums over these images: right answers, images, loss. Ranks do not communicate: their numbers may differ."""
    model = bare(model)
    model.eval()
    counts = torch.zeros(3, dtype=torch.float64, device=device)
    for images, labels in batches:
        counts += count(model, images.to(device), labels.to(device), amp=amp)
    return counts


def count(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, amp: bool) -> torch.Tensor:
    """The same sums of one batch."""
    with torch.autocast(images.device.type, enabled=amp):
        answers = model(images)
    right = (answers.argmax(1) == labels).sum()
    # Sums of thousands in 32 bits or less would differ by how the images are divided among ranks.
    loss = nn.functional.cross_entropy(answers.double(), labels, reduction="sum")
    return torch.stack([right.double(), torch.tensor(len(labels), device=right.device).double(), loss])


def share_buffers(model: nn.Module) -> None:
    """Share BatchNorm's running statistics, which differ by rank: all evaluate with rank 0's, which are saved."""
    if dist.is_initialized():
        for buffer in bare(model).buffers():
            dist.broadcast(buffer, 0)


def add_up_on_rank_0(counts: torch.Tensor) -> list[float] | None:
    """The sums over all ranks; None on all ranks but 0."""
    sums = counts.clone()
    dist.reduce(sums, dst=0)
    return sums.tolist() if dist.get_rank() == 0 else None


def add_up_everywhere(counts: torch.Tensor) -> torch.Tensor:
    """The sums over all ranks, on each rank."""
    sums = counts.clone()
    dist.all_reduce(sums)
    return sums


def say(epoch: int, world_size: int, counts: torch.Tensor) -> None:
    """Print the results of the epoch."""
    right, images, loss = counts.tolist()
    told = f"accuracy = {right / images:.4f}, loss = {loss / images:.4f}"
    print(f"epoch {epoch} on {world_size} processes: {told}", flush=True)


def bare(model: nn.Module) -> nn.Module:
    """The model without its parallel wrapper."""
    return model.module if isinstance(model, DataParallel | DistributedDataParallel) else model


def load(
    path: Path | None,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    *,
    device: torch.device,
) -> int:
    """Load the checkpoint of any number of processes, if there is one. Returns the epoch to continue with."""
    if path is None or not path.exists():
        return 0
    saved = torch.load(path, map_location=device)
    bare(model).load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    scaler.load_state_dict(saved["scaler"])
    return int(saved["epoch"]) + 1


def save(
    path: Path | None, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> None:
    """Write a checkpoint atomically."""
    if path is None:
        return
    states = {"model": bare(model), "optimizer": optimizer, "scaler": scaler}
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    torch.save({"epoch": epoch, **{name: state.state_dict() for name, state in states.items()}}, unfinished)
    unfinished.replace(path)
