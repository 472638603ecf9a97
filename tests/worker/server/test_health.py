"""How long the processes of a pod have done nothing, as their launcher sees it: one look a second."""

import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from elastic_worker.contract import IN_PLACE
from elastic_worker.coordinator.part import part_of
from elastic_worker.launcher.health import Health
from elastic_worker.launcher.life import ALIVE_BYTES, Life, Seen
from elastic_worker.launcher.trainees import Trainee, Trainees
from elastic_worker.processes.steps import Steps
from elastic_worker.protocol.codec import to_line
from elastic_worker.protocol.process_reports import Position
from tests.worker.coordinator.states import make_group

BUSY = 1.0


@dataclass
class Watched:
    """A process at one look a second; `mean` is what its steps took before."""

    life: Life = field(default_factory=Life)
    now: float = 0.0
    cpu: float = 0.0
    steps: int = 0
    read: int = 0
    first: float | None = None
    last: float | None = None
    idle: float = 0.0

    def go_on(self, seconds, *, cpu=BUSY, steps=0, read=0):
        """For so long, with so much of each in every second; with `read` None nobody looks at that."""
        for _ in range(seconds):
            self.now += 1
            self.cpu += cpu
            self.read += read or 0
            if steps:
                self.steps += steps
                self.first, self.last = self.first or self.now, self.now
            moved = None if read is None else self.read
            seen = Seen(self.cpu, moved, self.steps, self.first, self.last)
            self.idle = self.life.idle(seen, self.now)
        return self.idle


def test_a_process_that_uses_no_cpu_is_idle_whether_it_has_done_steps_or_not():
    assert Watched().go_on(100, cpu=0.0) == pytest.approx(99, abs=1)
    trained = Watched()
    trained.go_on(50, steps=10)
    assert trained.go_on(100, cpu=0.0) == pytest.approx(100, abs=1)


def test_a_process_that_trained_and_only_spins_is_idle_since_its_last_step():
    spins = Watched()
    spins.go_on(50, steps=10)
    assert spins.go_on(100) == pytest.approx(100, abs=1)
    assert spins.go_on(1, steps=1) == 0


def test_a_process_that_reads_or_writes_is_not_idle_however_long_its_step_takes():
    """An evaluation, a slow disk, a compiler that is started."""
    reads = Watched()
    reads.go_on(50, steps=10)
    assert reads.go_on(1000, read=ALIVE_BYTES // 4) <= 5
    assert reads.go_on(100) == pytest.approx(100, abs=5)


def test_whoever_is_looked_at_only_after_a_while_may_have_read_until_then():
    spins = Watched()
    spins.go_on(50, steps=10, read=None)
    assert spins.go_on(25, read=None) == 25
    assert spins.go_on(1) == 0
    assert spins.go_on(100) == 100


def test_only_who_has_done_no_step_for_a_quarter_of_the_limit_must_read_and_write():
    def process(pid, last, *, ended=False):
        return SimpleNamespace(pid=pid, steps=Steps(5, last, 0.0), exited=SimpleNamespace(done=lambda: ended))

    processes = [process(1, None), process(2, 74.0), process(3, 76.0), process(4, 0.0, ended=True)]
    group = SimpleNamespace(settings=SimpleNamespace(stall_seconds=100), processes=processes)
    for mode, silent in (("", [2]), (IN_PLACE, [])):
        group.trainees = SimpleNamespace(change_mode=mode)
        assert Health(group, SimpleNamespace()).silent(100.0) == silent


def test_what_is_written_to_a_log_is_no_work():
    spins = Watched()
    spins.go_on(50, steps=10)
    assert spins.go_on(100, read=ALIVE_BYTES // 10_000) == pytest.approx(100, abs=1)


def test_a_step_may_take_twenty_times_the_usual():
    slow = Watched()
    for _ in range(5):
        slow.go_on(1, steps=1)
        slow.go_on(9)
    assert slow.go_on(180) == 0
    assert slow.go_on(20) > 180


def test_before_its_first_steps_whoever_uses_its_cpu_is_at_work():
    assert Watched().go_on(1000) == 0
    once = Watched()
    once.go_on(1, steps=1)
    assert once.go_on(1000) == 0


@pytest.mark.parametrize(("seconds", "is_stuck"), [(70.0, False), (1799.0, False), (1801.0, True)])
def test_of_a_step_of_the_librarys_stall_seconds_count_however_quick_the_others_were(seconds, is_stuck):
    """A file server fails over, a compiler compiles within the step: a minute of that is no hang."""
    told = {}
    library = Trainees("u1", Path("socket"), report=lambda *said: told.update(to_line(*said)), size=lambda: 1)
    trainee = Trainee(0, IN_PLACE, SimpleNamespace(is_closing=lambda: True))
    trainee.position = Position(boundary=31, seconds=seconds, median=0.1)
    library._trainees[0] = trainee
    settings = SimpleNamespace(stall_seconds=1800, pod_uid="u1")
    group = SimpleNamespace(trainees=library, settings=settings, part=part_of(make_group(0, 1), "u1"), running=True)
    vars(group).update(processes=[], aligning=SimpleNamespace(frozen=False, under_way=False), step=30)
    connection = SimpleNamespace(remember=lambda *_: None, report=lambda *said: told.update(to_line(*said)))
    Health(group, connection).look(0.0, {})
    assert (told.get("stuck") is not None) is is_stuck


@pytest.mark.parametrize(("mode", "ended_after"), [("", 5), (IN_PLACE, 2)])
def test_a_stopped_process_is_ended_sooner_where_the_others_go_on_without_it(mode, ended_after):
    signals = []
    stopped = SimpleNamespace(
        pid=7, state=lambda: "T", signal=signals.append, exited=SimpleNamespace(done=lambda: True)
    )
    library = SimpleNamespace(in_place=mode == IN_PLACE, change_mode=mode, poll_stuck=lambda _seconds: None)
    aligning = SimpleNamespace(frozen=False, under_way=False)
    settings = SimpleNamespace(stall_seconds=1800)
    group = SimpleNamespace(trainees=library, settings=settings, part=None, running=True, step=0)
    vars(group).update(processes=[stopped], aligning=aligning)
    health = Health(group, SimpleNamespace(remember=lambda *_: None, report=lambda *_: None))
    for now in range(ended_after):
        health.look(float(now), {})
    assert signals == []
    health.look(float(ended_after), {})
    assert signals == [signal.SIGKILL]
