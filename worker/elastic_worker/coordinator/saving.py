"""Has the script asked for a checkpoint by all pods of a group, all ranks after the same step (132).

    ask how far ──► all: step n ──► propose n + margin ──► all wait there ──► ask for it
                        │                    └──► one has passed it: propose again, with twice the margin
                        └──► a process counts no steps: ask all at once

Who has passed a step cannot be asked there, and who waits at it does not go on before it is known whether it is asked:
so no rank saves at another step than the others, which would hang where they save together, as long as the answer
reaches it within `processes.steps.AGREE_SECONDS`. It takes no collective.
Launchers of the release before do not answer, and nobody is asked.
"""

from __future__ import annotations

import logging

from elastic_worker.coordinator.member import Member
from elastic_worker.coordinator.state import CoordinatorState, Phase
from elastic_worker.coordinator.telling import Tell
from elastic_worker.protocol.orders import AskSave, Save
from elastic_worker.protocol.reports import SaveReady

log = logging.getLogger(__name__)


class Saving:
    """Of one coordinator; `tell(uids, message)` reaches those of the members that are connected."""

    def __init__(self, state: CoordinatorState, tell: Tell) -> None:
        self._state, self._tell = state, tell
        self._answers: dict[str, SaveReady] = {}
        self._round, self._step, self._margin = 0, 0, 1

    def begin(self) -> None:
        """Ask for a checkpoint, whatever was asked for before."""
        self._state.asked_at, self._margin = None, 1
        self._propose(0)

    def answered(self, member: Member, said: SaveReady, now: float) -> None:
        """A pod has said how far its processes are, and whether they wait at the step that was proposed."""
        state = self._state
        if state.phase != Phase.ALIGNING or state.asked_at is not None or said.round != self._round:
            return
        self._answers[member.pod.uid] = said
        answers = [self._answers.get(uid) for uid in state.here()]
        known = [answer for answer in answers if answer is not None]
        if len(known) < len(answers):
            return
        if not all(answer.step for answer in known):
            self._ask(0, now)
        elif self._step and all(answer.is_held for answer in known):
            self._ask(self._step, now)
        else:
            self._propose(max(answer.step for answer in known) + self._margin)
            self._margin *= 2

    def entered(self, member: Member) -> None:
        """A pod whose line broke is back: it may have missed that the script is asked."""
        state = self._state
        if state.phase == Phase.ALIGNING and state.asked_at is not None and member.pod.uid in state.here():
            self._tell({member.pod.uid}, Save(self._step))

    def _propose(self, step: int) -> None:
        self._round, self._step = self._round + 1, step
        self._answers.clear()
        self._tell(self._state.here(), AskSave(self._round, step))

    def _ask(self, step: int, now: float) -> None:
        self._state.asked_at, self._step = now, step
        log.info("the script is asked for a checkpoint %s", f"after step {step} of its group" if step else "at once")
        self._tell(self._state.here(), Save(step))
