"""Reads the body of a launcher's `/status` strictly. A user's pod writes it, so none of it is trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from elastic_api.job import MAX_PROCESSES, MAX_REPLICAS
from elastic_api.status import MAX_METRICS
from elastic_operator.plan.facts.group_report import Goodput, GroupChange, GroupReport
from elastic_worker import contract

MAX_REPORTED_CHANGES = 20
MAX_GIVEN_UP = 3
"""The most pods that are named. If there are more, they have one cause."""
MAX_FLAGS = 8
MAX_METRIC = 64
"""The most characters of a metric's name, and of its value; longer ones are cut."""
MAX_SENTENCE = 256
"""The most characters of a text that is shown; longer ones are cut."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Pods = Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)]
Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z]{0,32}\Z")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Fields that a newer launcher adds are ignored (103)."""


class _Parts(_Struct, frozen=True):
    startup: Seconds = 0.0
    productive: Seconds = 0.0
    lost: Seconds = 0.0
    regroup: Seconds = 0.0
    checkpoint: Seconds = 0.0
    other: Seconds = 0.0


class _Goodput(_Struct, frozen=True):
    share: Share
    seconds: _Parts = _Parts()


class _Metric(_Struct, frozen=True):
    name: str
    value: str


class _Training(_Struct, frozen=True):
    step: Count | None = None
    last_checkpoint_step: Count | None = None
    checkpoint_error: str = ""
    epoch: Count | None = None
    samples_seen: Count | None = None
    loss: float | None = None
    goodput: _Goodput | None = None
    progress_percentage: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    estimated_remaining_seconds: Annotated[int, msgspec.Meta(ge=0, le=10**10)] | None = None
    metrics: tuple[_Metric, ...] = ()


class _Change(_Struct, frozen=True):
    generation: Count
    time: Seconds
    reason: Word
    before: Pods = msgspec.field(name="from")
    after: Pods = msgspec.field(name="to")
    pause_seconds: Seconds | None = None
    lost_steps: Count | None = None


class _GivenUp(_Struct, frozen=True):
    pod: str
    why: str = ""


class _Status(_Struct, frozen=True):
    contract: str
    master_epoch: Count = msgspec.field(name="epoch")
    generation: Count
    state: Word
    reason: str = ""
    members: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_REPLICAS)] = ()
    world_size: Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS * MAX_PROCESSES)] = 0
    given_up: Annotated[tuple[_GivenUp, ...], msgspec.Meta(max_length=MAX_REPLICAS)] = ()
    unused_flags: tuple[str, ...] = ()
    training: _Training = _Training()
    changes: Annotated[tuple[_Change, ...], msgspec.Meta(max_length=MAX_REPORTED_CHANGES)] = ()


_decode = msgspec.json.Decoder(_Status).decode


def read_report(
    body: bytes, *, master_uid: str, master_epoch: int, is_member_name: Callable[[str], bool], now: float
) -> GroupReport | None:
    """The report at `now` of the master with that epoch; None if it is unreadable, or another master's."""
    try:
        status = _decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if (
        status.contract not in contract.UNDERSTOOD
        or status.master_epoch != master_epoch
        or not all(map(is_member_name, status.members))
    ):
        return None
    training = asdict(status.training) | {
        "checkpoint_error": _plain(status.training.checkpoint_error) or None,
        "goodput": _goodput(status.training.goodput),
        "metrics": _metrics(status.training.metrics),
    }
    given_up = [(lost.pod, _plain(lost.why)) for lost in status.given_up if is_member_name(lost.pod)]
    return GroupReport(
        master_uid=master_uid,
        read_at=now,
        generation=status.generation,
        state=status.state,
        reason=_plain(status.reason),
        members=status.members if len(set(status.members)) == len(status.members) else (),
        world_size=status.world_size,
        given_up=tuple(given_up[:MAX_GIVEN_UP]),
        unused_flags=tuple(map(_plain, status.unused_flags[:MAX_FLAGS])),
        changes=tuple(GroupChange(**asdict(change)) for change in status.changes),
        **training,
    )


def _goodput(goodput: _Goodput | None) -> Goodput | None:
    return Goodput(goodput.share, asdict(goodput.seconds)) if goodput is not None else None


def _metrics(metrics: tuple[_Metric, ...]) -> tuple[tuple[str, str], ...]:
    plain = {_plain(metric.name)[:MAX_METRIC]: _plain(metric.value)[:MAX_METRIC] for metric in metrics}
    return tuple((name, value) for name, value in plain.items() if name)[:MAX_METRICS]


def _plain(text: str) -> str:
    """One short line of printable characters."""
    line = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * MAX_SENTENCE])
    return " ".join(line.split())[:MAX_SENTENCE]
