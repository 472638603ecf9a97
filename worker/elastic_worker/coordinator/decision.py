"""What was decided, as data, and what decisions of both kinds are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastic_worker.coordinator.model import Board, Failure, Generation, Pod, Regroup

LOOK_SECONDS = 10.0
"""Whether anybody still does anything is asked so often."""


@dataclass(frozen=True)
class Decision:
    """What to do: stay, adopt, align, resume, stop, stopped, give_up, form, done or fail.

    In place also candidates, host, prepare, ask, propose, bind, cancel, retry, refuse, park or count.

    `until`: when, with nothing else new, the answer may differ. `reason` is that of a change. To align: a checkpoint is
    to begin within `seconds`, and to end within `last_call` seconds.
    """

    act: str
    sentence: str
    reason: str = ""
    until: float | None = None
    group: Generation | None = None
    failure: Failure | None = None
    seconds: float | None = None
    last_call: float | None = None
    pods: tuple[Pod, ...] = ()
    attempt: Regroup | None = None


def over_for_good(board: Board) -> Decision | None:
    """The end, where the last failure that counts was one too many, or one after which no other try fares better."""
    failure = board.failure
    if failure is None:
        return None
    code = failure.exit_code if failure.exit_code >= 0 else 128 - failure.exit_code
    if board.failures >= max(1, board.rules.max_failures):
        why = f"failure {board.failures} in a row"
    elif failure.rank >= 0 and not failure.is_stall and code in board.rules.final_exit_codes:
        why = f"exit code {code} is one of recovery.finalExitCodes"
    else:
        return None
    told = f"{failure.message} ({why})"
    return Decision("fail", told, failure=replace(failure, message=told))


def next_generation(board: Board, pods: tuple[Pod, ...], reason: str) -> Generation:
    """The one that these pods would make now."""
    assert board.wish is not None
    return Generation(
        number=(board.group.number if board.group else 0) + 1,
        epoch=board.epoch,
        wish=board.wish.number,
        pods=pods,
        reason=reason,
        failures=board.failures,
        step=board.step,
    )
