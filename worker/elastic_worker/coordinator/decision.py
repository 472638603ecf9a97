"""What was decided, as data, and what decisions of both kinds are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastic_worker.coordinator.model import Failure, Generation, Pod
from elastic_worker.coordinator.state import CoordinatorState, Regroup

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


def over_for_good(state: CoordinatorState) -> Decision | None:
    """The end, where the last failure that counts was one too many, or one after which no other try fares better."""
    failure = state.failure
    if failure is None:
        return None
    code = failure.exit_code if failure.exit_code >= 0 else 128 - failure.exit_code
    if state.failures >= max(1, state.rules.max_failures):
        why = f"failure {state.failures} in a row"
    elif failure.rank >= 0 and not failure.is_stall and code in state.rules.final_exit_codes:
        why = f"exit code {code} is one of recovery.finalExitCodes"
    else:
        return None
    told = f"{failure.message} ({why})"
    return Decision("fail", told, failure=replace(failure, message=told))


def next_generation(state: CoordinatorState, pods: tuple[Pod, ...], reason: str) -> Generation:
    """The one that these pods would make now."""
    assert state.wish is not None
    return Generation(
        number=(state.group.number if state.group else 0) + 1,
        epoch=state.epoch,
        wish=state.wish.number,
        pods=pods,
        reason=reason,
        failures=state.failures,
        step=state.step,
    )
