"""A decision as data, and the common parts of decisions with restarted processes and of decisions in place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elastic_worker.coordinator.model import Failure, Generation, Pod
from elastic_worker.coordinator.state import CoordinatorState, RegroupAttempt

LOOK_SECONDS = 10.0
"""How often the coordinator looks for idle processes while nothing else happens."""


@dataclass(frozen=True)
class Decision:
    """The action (`act`), and its reason (`sentence`).

    `act` is stay, adopt, align, resume, stop, stopped, give_up, form, done or fail; for changes in place also
    candidates, host, prepare, ask, propose, bind, cancel, retry, refuse, prepare_wait, wait_broken or count_failure.

    `until`: when the decision may differ without any news. `reason`: the reason of the change, as users see it. To
    align: the checkpoint has to begin within `seconds`, and to be complete within `last_call` seconds.
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
    attempt: RegroupAttempt | None = None


def failed_for_good(state: CoordinatorState) -> Decision | None:
    """Return the decision to fail the job after too many failures in a row, or a final exit code (135); else None."""
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
    sentence = f"{failure.message} ({why})"
    return Decision("fail", sentence, failure=replace(failure, message=sentence))


def next_generation(state: CoordinatorState, pods: tuple[Pod, ...], reason: str) -> Generation:
    """Return the generation that these pods would make now."""
    assert state.membership is not None
    return Generation(
        number=(state.group.number if state.group else 0) + 1,
        epoch=state.epoch,
        membership_number=state.membership.number,
        pods=pods,
        reason=reason,
        failures=state.failures,
        step=state.step,
    )
