"""Moves a training process from group to group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed as dist

from elastic_worker import contract
from elastic_worker.contract import IN_PLACE, RESTART
from elastic_worker.library import ddp, groups, handover, releases, trial
from elastic_worker.library.launcher_line import FORM_SECONDS, LauncherLine
from elastic_worker.library.line_state import Verdict
from elastic_worker.library.place import SurroundingsError, find, local_rank, set_environment
from elastic_worker.library.shuffle import KEYED, RANDPERM
from elastic_worker.library.state import State, StateError
from elastic_worker.protocol.process_orders import GroupPlace
from elastic_worker.protocol.process_reports import Hello, Joined
from elastic_worker.protocol.reports import SavedTogether

log = logging.getLogger(__name__)

FIRST_FORM_SECONDS = 3600.0
"""Time limit for the first group: all scripts have to reach job.restore. The launcher ends the group if one fails."""


class Regrouping:
    """The groups of one training process. `load` reads the newest checkpoint if no rank has a state; `save` writes one.

    `in_place` is None to change in place where that is possible, which needs gloo. `checkpoints` is the folder of
    checkpoints, through which masters learn of each other; "" for none.
    """

    def __init__(
        self, *, backend: str, in_place: bool | None, environ: Mapping[str, str], checkpoints: str = ""
    ) -> None:
        self.local_rank = local_rank(environ)
        self.device = _device(self.local_rank)
        self.backend = backend or ("nccl" if self.device.type == "cuda" else "gloo")
        self.place: GroupPlace | None = None
        self.formed: groups.Formed | None = None
        self.state: State | None = None
        self.models: list[ddp.ElasticDDP] = []
        self.load: Callable[[], None] = lambda: None
        self.save: Callable[[], None] = lambda: None
        self.save_together: Callable[[], None] = lambda: None
        self.entered: Callable[[], None] = lambda: None
        self.aborted = False
        self._own = find(environ)
        self._has_state = self._at_boundary = False
        self.change_mode = self._choose(in_place)
        self.line: LauncherLine | None = None
        if path := environ.get(contract.ENV_LIBRARY, ""):
            self.line = LauncherLine(path, Hello(self.local_rank, self.change_mode, checkpoints), form=self._form)
        if self.change_mode == RESTART:
            # Such scripts need the group before job.restore, for example to shard a model.
            self.formed = self._public_group()

    def _choose(self, in_place: bool | None) -> str:
        """IN_PLACE or RESTART. Raises SurroundingsError if the script demands in-place changes and they cannot work."""
        if in_place is False:
            return RESTART
        why = "NCCL groups" if self.backend != "gloo" else trial.self_test()
        if why and in_place:
            raise SurroundingsError(f"elastic.init(in_place=True): not possible here ({why}); leave it out")
        if why and self._own.world > 1:
            log.warning("the group is not changed in place (%s): processes start again from a checkpoint instead", why)
        return RESTART if why else IN_PLACE

    @property
    def changes_in_place(self) -> bool:
        """Whether this process can enter another group without a restart."""
        return self.line is not None and self.change_mode == IN_PLACE

    @property
    def needs_checkpoints(self) -> bool:
        """Whether a change of size needs a checkpoint."""
        return self.line is not None and self.change_mode == RESTART

    # -- the first group -----------------------------------------------------------------------------------------------

    def take_part(self, state: State) -> None:
        """Enter the first group, or join one that trains already, and get the state of the training."""
        self.state = state
        if self.line is not None and not self._own.generation:
            self.line.park()
            self._enter_next(self._next_verdict())
        else:
            self._first_group()
        self._at_boundary = True

    def _first_group(self) -> None:
        own, state = self._own, self.state
        assert state is not None
        if not self.changes_in_place:
            formed = self.formed or self._public_group()
            self.formed = None
            if self.line is not None:
                self.line.enter(own.generation, None)
        else:
            assert self.line is not None
            formed = groups.form(**self._where(own), prefix=f"library-{own.generation}.0", timeout=FIRST_FORM_SECONDS)
            self.line.enter(own.generation, formed)
        if own.rank == 0 or state.is_sharded:
            self.load()
            self._has_state = True
        try:
            self._enter(own, formed)
        except Exception as error:
            if not self.changes_in_place or not groups.is_communication_error(error):
                raise
            self._enter_next(self._await_next())

    def _public_group(self) -> groups.Formed | None:
        """Form torch's own group if our launcher is absent. A process alone needs no group."""
        if self._own.world == 1:
            return None
        if not dist.is_initialized():
            dist.init_process_group(self.backend, rank=self._own.rank, world_size=self._own.world)
        store = groups.default_store()
        return groups.Formed(self.backend, dist.get_rank(), dist.get_world_size(), "default", dist.group.WORLD, store)

    # -- from group to group -------------------------------------------------------------------------------------------

    def pass_boundary(self) -> bool:
        """Pass a boundary, where the group may change; returns whether it did. Raises PodLeaves."""
        if self._at_boundary or self.line is None:
            self._at_boundary = False
            return False
        verdict = self.line.boundary(self.save)
        if verdict is None:
            return False
        if verdict.save:
            self._save_together(self.line)
        else:
            self._enter_next(verdict)
        return True

    def _save_together(self, line: LauncherLine) -> None:
        """Save a checkpoint with all ranks, and wait for the end: a new process continues from it. Raises PodLeaves."""
        try:
            self.save_together()
        except BaseException:
            line.send(SavedTogether(False, line.bound))
            raise
        line.send(SavedTogether(True, line.bound))
        line.wait(lambda: None)

    def free_boundary(self) -> None:
        """Do not count the next boundary: the group was entered there."""
        self._at_boundary = True

    def has_lost_a_peer(self) -> bool:
        """Whether an error of communication means that the group has lost a pod, so that a new group follows."""
        if self.line is None or self.formed is None or not self.changes_in_place:
            return False
        groups.abort(self.formed)
        return self.line.is_confirmed()

    def _where(self, place: GroupPlace) -> dict[str, Any]:
        where = {"host": place.host, "port": place.port, "rank": place.rank, "world": place.world}
        return {**where, "backend": self.backend, "device": self.device}

    def _form(self, place: GroupPlace, name: str) -> groups.Formed:
        return groups.form(**self._where(place), prefix=name, timeout=FORM_SECONDS)

    def _next_verdict(self) -> Verdict:
        assert self.line is not None
        verdict = None
        while verdict is None:
            verdict = self.line.wait(self.save)
        return verdict

    def _await_next(self) -> Verdict:
        """Wait for the next group while this one is broken."""
        assert self.line is not None
        self.line.lost()
        return self._next_verdict()

    def _enter_next(self, verdict: Verdict) -> None:
        """Enter the next group, or the one after it if that is lost before all ranks have entered."""
        while True:
            assert verdict.place is not None
            try:
                if verdict.formed is not None:
                    self._enter(verdict.place, verdict.formed)
                    return
                why = "it was not formed here"
            except Exception as error:
                if not groups.is_communication_error(error):
                    raise
                why = str(error)
            log.warning("generation %d was lost at its beginning: %s", verdict.place.generation, why)
            verdict = self._await_next()

    def _enter(self, place: GroupPlace, formed: groups.Formed | None) -> None:
        """Install a group and bring its members to the same state."""
        assert self.state is not None
        began, previous_group = time.monotonic(), self.formed
        self.place, self.formed = place, formed
        set_environment(place)
        if formed is not None:
            if self.changes_in_place:
                groups.install(formed)
            if not self.state.is_sharded:
                self._share_state(self.state, formed)
        self.state.data.choose_order(self._order_kind(self.state, formed))
        for model in self.models:
            if formed is None:
                model.use_alone()
            else:
                model.regroup(formed, can_be_given_up=self.changes_in_place)
        if previous_group is not None:
            threading.Thread(target=groups.discard, args=(previous_group,), daemon=True).start()
        seconds, step = time.monotonic() - began, self.state.step
        text = "generation=%d rank=%d world=%d step=%d taken over in %.3f s"
        log.info(text, place.generation, place.rank, place.world, step, seconds)
        if self.line is not None:
            self.line.send(Joined(place.generation))
        self.aborted = False
        self.entered()

    def _order_kind(self, state: State, formed: groups.Formed | None) -> int:
        """The newest version of the order that all ranks know. Ranks announce theirs before a state is shared."""
        ask = releases.agree if state.is_sharded else releases.all_know
        return KEYED if formed is None or ask(formed, releases.KEYED_ORDER) else RANDPERM

    def _share_state(self, state: State, formed: groups.Formed) -> None:
        def apply(captured: dict[str, Any]) -> None:
            self._has_state = False
            state.apply(captured)
            self._has_state = True

        def existing() -> dict[str, Any]:
            self._has_state = False
            return state.existing()

        had_state = self._has_state
        shared = handover.hand_over(
            formed,
            capture=state.capture_for_peer,
            apply=apply,
            existing=existing,
            have=had_state,
            step=state.progress if had_state else -1,
            mark=state.mark() if had_state else 0,
        )
        if shared.source is None:
            raise StateError("no rank of the group has the state of the training")


def _device(index: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", index % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
