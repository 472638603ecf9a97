"""One seed's soak: the set-up, the minutes of its plan, and the judgement at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from rich.console import Console

from devcluster.cluster import take_down
from devcluster.progress import Progress
from elastic_operator.cluster.errors import AlreadyExists
from tests.simulate.judge import judge
from tests.simulate.violation import require
from tests.soak import opening, records, weight
from tests.soak.edits import EDITS
from tests.soak.faults import AWAY, COSTLY, FAULT, FAULTS, SCHEDULER_KILLED, SETTLES_SECONDS, TAIL_SECONDS
from tests.soak.hostile import HOSTILITIES
from tests.soak.plan import Deed, Kind, make_plan
from tests.soak.records import Cause
from tests.soak.results import Event, Result
from tests.soak.site import SCHEDULER
from tests.soak.stage import Stage
from tests.soak.tenant import HOSTILE
from tests.soak.trainings import EPOCH_STEPS
from tests.soak.watch import Watch
from tests.soak.world import what_there_is

MINUTE = 60.0
DEEDS = {kind.name: do for kind, do in {**EDITS, **HOSTILITIES, **FAULTS}.items()}
MOST_RESTLESS = 2
"""After so many minutes in which the cluster did not come to rest, it is waited for as long as it takes."""
REST_SECONDS = 240.0
STANDSTILL_SECONDS = 240.0
"""A training must do a step within so long, whatever happens."""
TICK_SECONDS = 0.5
CARE_SECONDS = 10.0
"""So often the cluster is looked after, as kubelets look after the pods of a control plane."""


@dataclass(slots=True)
class Open:
    """A deed that is to be undone at `until`, on the monotonic clock."""

    deed: Deed
    undo: Iterator[str]
    told: str
    begun: float
    until: float


@dataclass(slots=True)
class Soak:
    """A run under way."""

    stage: Stage
    result: Result
    console: Console
    watch: Watch
    open: list[Open] = field(default_factory=list)
    restless: int = 0
    cared_at: float = 0.0

    # -- minutes -------------------------------------------------------------------------------------------------------

    def minute(self, number: int, deeds: list[Deed]) -> None:
        """Do what is planned, undo it, come to rest, judge; ends no earlier than the minute does."""
        begun = time.monotonic()
        for deed in deeds:
            self._until(begun + deed.second)
            self._begin(deed)
        while self.open:
            self._until(min(one.until for one in self.open))
        rested = self._rest(begun + MINUTE)
        self._judge_trainings()
        self._until(begun + MINUTE)
        self.watch.raise_what_broke()
        self._tell(number, rested=rested)

    def _until(self, moment: float) -> None:
        """Undo what is due, and see that there are jobs enough, until then."""
        while True:
            for one in [one for one in self.open if one.until <= time.monotonic()]:
                self._undo(one)
            self.stage.world.fill_up()
            self._care()
            self.watch.raise_what_broke()
            if time.monotonic() >= moment:
                return
            time.sleep(TICK_SECONDS)

    def _care(self) -> None:
        if time.monotonic() < self.cared_at + CARE_SECONDS:
            return
        self.cared_at = time.monotonic()
        killed = any(one.deed.name == SCHEDULER_KILLED for one in self.open)
        if not killed and self.stage.site.start_ended_scheduler():
            told = "kube-scheduler had ended itself, and is started again"
            now = round(self._now(), 1)
            self.result.events.append(Event(now, now, "care", SCHEDULER, told))
            self.console.print(f"  {now:7.1f} s  care: {told}", markup=False, soft_wrap=True)

    def _begin(self, deed: Deed) -> None:
        begun = time.monotonic()
        undo = DEEDS[deed.name](self.stage, Random(deed.seed))
        told = ""
        with contextlib.suppress(AlreadyExists):  # a request that was answered late had been sent twice
            told = next(undo)
        self.console.print(
            f"  {self._now():7.1f} s  {deed.sort}: {told or f'{deed.name}: not now'}", markup=False, soft_wrap=True
        )
        one = Open(deed, undo, told, begun, time.monotonic() + deed.lasts_seconds)
        if deed.name in AWAY:
            time.sleep(deed.lasts_seconds)
            self._undo(one, first=True)
        else:
            self.open.append(one)

    def _undo(self, one: Open, *, first: bool = False) -> None:
        if not first:
            self.open.remove(one)
        with contextlib.suppress(AlreadyExists):
            for _ in one.undo:
                raise AssertionError(f"{one.deed.name} does more than one thing")
        settled = time.monotonic() + SETTLES_SECONDS.get(one.deed.name, 0.0)
        self.stage.world.settled_at = max(self.stage.world.settled_at, settled)
        begun, ended = (moment - self.result.began for moment in (one.begun, time.monotonic()))
        if one.told:
            event = Event(round(begun, 1), round(ended, 1), one.deed.sort, one.deed.name, one.told)
            self.result.events.append(event)

    def _rest(self, end: float) -> bool:
        """Whether the cluster came to rest before the minute's end, and was judged."""
        must = self.restless >= MOST_RESTLESS
        seconds = REST_SECONDS if must else max(0.0, end - time.monotonic())
        photo = self.stage.world.rest_within(seconds)
        require(photo or not must, f"pods come and go for {REST_SECONDS:.0f} s though nothing happens")
        self.restless = 0 if photo else self.restless + 1
        if photo is not None:
            judge(photo, self.stage.world.rng)
            self.result.rests += 1
        return photo is not None

    # -- judgement -----------------------------------------------------------------------------------------------------

    def causes(self) -> list[Cause]:
        """What may have cost a training something, on the monotonic clock."""
        began, costly = self.result.began, [e for e in self.result.of(FAULT) if e.name in COSTLY]
        return [Cause(e.told, began + e.seconds, began + e.ended + TAIL_SECONDS) for e in costly]

    def _judge_trainings(self) -> None:
        for name, training in self.stage.trainings.items():
            steps = training.read()
            verdict = records.judge(
                steps, self.causes(), epoch_steps=EPOCH_STEPS, most_pause_seconds=STANDSTILL_SECONDS
            )
            self.result.trainings[name] = verdict
            require(not verdict.wrong, f"{name}: {'; '.join(verdict.wrong)}")
            still = time.monotonic() - max(steps).time
            require(still < STANDSTILL_SECONDS, f"{name} has stood still for {still:.0f} s")

    def end(self) -> None:
        """Undo everything, let the trainings finish, judge all of it."""
        while self.open:
            self._undo(self.open[0])
        self._rest_at_last()
        for training in self.stage.trainings.values():
            training.finish()
        self._judge_trainings()
        self._no_fault_was_left_out()

    def _rest_at_last(self) -> None:
        self.restless = MOST_RESTLESS
        self._rest(0.0)

    def _no_fault_was_left_out(self) -> None:
        for sort in ("policy", "job", HOSTILE, FAULT):
            done, planned = len(self.result.of(sort)), self.result.minutes
            require(done >= 0.9 * planned, f"{done} of {planned} times a {sort} came about")

    def weigh(self) -> None:
        """Take over what was seen, and judge what operators held."""
        self.result.samples, self.result.weights = self.watch.samples, self.watch.weights
        self.result.flatness = weight.judge(self.watch.weights)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() - self.result.began

    def _tell(self, number: int, *, rested: bool) -> None:
        last = self.watch.samples[-1] if self.watch.samples else None
        worlds = ", ".join(f"{n} {w}" for n, w in (last.worlds if last else {}).items())
        lost = sum(verdict.lost for verdict in self.result.trainings.values())
        held = self.watch.weights[-1].megabytes if self.watch.weights else 0.0
        told = f"{last.alive if last else 0} jobs alive, training on {worlds}, {lost} steps done again, {held:.0f} MB"
        rest = "at rest, all as it must be" if rested else "no rest"
        self.console.print(
            f"minute {number + 1} of {self.result.minutes}: {told}, {rest}", markup=False, soft_wrap=True
        )


def run(
    *, seed: int, minutes: int, name: str, console: Console, faults: Sequence[str] = (), keep: bool = False
) -> Result:
    """A soak from nothing, with faults of all kinds or of these; the cluster is gone at the end.

    What broke is in the result.
    """
    result = Result(seed=seed, minutes=minutes)
    progress = Progress()
    take_down(name, progress=progress)
    try:
        stage = opening.set_up(name, seed, progress)
        _live(stage, result, console, [kind for kind in FAULTS if not faults or kind.name in faults])
    except Exception as error:  # noqa: BLE001 - what broke is the result
        result.wrong.append(_told(error))
    finally:
        if not keep:
            take_down(name, progress=progress)
    return result


def _live(stage: Stage, result: Result, console: Console, faults: Sequence[Kind]) -> None:
    result.began = time.monotonic()
    watch = Watch(stage, result.began)
    soak = Soak(stage, result, console, watch)
    watch.start()
    try:
        for number, deeds in enumerate(make_plan(result.seed, result.minutes, [*EDITS, *HOSTILITIES, *faults])):
            soak.minute(number, deeds)
        soak.end()
    except Exception as error:
        events = [f"{e.seconds:.1f} to {e.ended:.1f} s: {e.sort}: {e.told}" for e in result.events]
        under_way = [f"{one.deed.sort}: {one.told}, not undone" for one in soak.open]
        error.add_note("\n  ".join([f"seed {result.seed}, after these events:", *events, *under_way]))
        error.add_note(f"what there is:\n  {_seen(stage)}")
        raise
    finally:
        watch.stop()
        soak.weigh()
    if result.flatness is not None:
        result.wrong += result.flatness.wrong


def _seen(stage: Stage) -> str:
    try:
        return f"{what_there_is(stage.world.photo())}\n  {stage.site.lab.operator_log()}"
    except Exception as error:  # noqa: BLE001 - it must not hide what broke
        return f"nobody knows: {error}"


def _told(error: BaseException) -> str:
    return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
