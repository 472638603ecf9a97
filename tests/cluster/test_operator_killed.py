"""The operator is killed, again and again, at any moment of jobs' lives. Training goes on, and the books are right.

Many jobs live at once: they grow, lose pods, rest, fail, end. With each thing done to one of them the operator's
process is killed, some time before, while or after it answers; half of the deeds it finds done when it is back.
"""

from __future__ import annotations

import functools
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby, pairwise
from statistics import median

import pytest

from demo.journal import epochs_of
from tests.cluster.births import Births
from tests.cluster.examples import TRAIN, example, give_files, give_volume
from tests.cluster.lab import wait
from tests.cluster.leader import LEASE, Leader
from tests.cluster.lives import Life

KILLS = 50
LONGEST_MOMENT = 3.0
ANSWER_SECONDS = 0.05
"""The operator's writes in answer to something come within about so long."""
STRETCH_SECONDS, STRETCH_EPOCHS = 5.0, 20
"""In so long, or while so many usual epochs take on this machine, there is one whatever else the machine does."""
SIZES = [1, 2, 3, 4, 5]

Script = Generator[Life | None, None, None]
"""Does one deed each time it is asked; what it yields must be as its book says before the next (None: come at once)."""


def resized(life: Life) -> Script:
    yield life.starts(4)
    yield life.scales(2)
    yield life.scales(3)
    yield life.scales(5)
    yield life.scales(1)
    life.ends()


def resized_at_random(life: Life, *, times: int, dice: random.Random) -> Script:
    yield life.starts(max(SIZES))
    for _ in range(times):
        yield life.scales(dice.choice([size for size in SIZES if size != life.size]))
    life.ends()


def bereaved(life: Life) -> Script:
    yield life.starts(3)
    yield life.loses_worker()
    yield life.loses_worker("--force", "--grace-period=0")
    yield life.loses_master()
    life.ends()


def on_gpus(life: Life) -> Script:
    yield life.starts(2)
    yield life.scales(3)
    yield life.loses_master()
    yield life.scales(1)
    life.ends()


def rested(life: Life) -> Script:
    yield life.starts(2)
    yield life.rests()
    yield life.wakes()
    yield life.rests()
    yield life.wakes()
    life.ends()


def successful(life: Life, orders) -> Script:
    yield life.starts(2, orders=orders)
    yield life.succeeds(orders)
    life.ends()


def expired(life: Life, orders) -> Script:
    yield life.starts(2, orders=orders, ttlSecondsAfterFinished=1)
    life.succeeds(orders).phase = "gone"


def failing(life: Life, orders) -> Script:
    yield life.starts(1, orders=orders, recovery={"maxFailuresWithoutProgress": 2})
    yield life.fails(orders)
    yield life.fails(orders, for_good=True)
    life.ends()


def brief(first: Life, second: Life) -> Script:
    first.starts(3)
    yield None
    first.ends()
    yield None
    yield second.starts(2)
    second.ends()


class Stage:
    """The lives, and the leader that is killed with each deed."""

    def __init__(self, team, births: Births, scripts: list[Script], dice: random.Random) -> None:
        self.leader, self.births, self.dice = Leader(team.lab), births, dice
        self.waiting: dict[Script, Life | None] = dict.fromkeys(scripts)

    def play(self, kills: int) -> None:
        """Until the operator was killed so many times, or no script is left."""
        while self.waiting and len(self.leader.killed_at) < kills:
            script = wait("a job to be as it should", self._ready, report=self._report)
            self.do(functools.partial(self._go_on, script))

    def do(self, deed: Callable[[], object]) -> None:
        """The deed, and the kill. The operator is at work by then, or it is on its way after the last kill."""
        if self.dice.random() < 0.5:
            self.leader.wait_until_leads()
        with ThreadPoolExecutor() as pool:
            pid = self.leader.wait_until_there()
            done = self._wait_for_the_moment(lambda: pool.submit(deed))
            self.leader.kill(pid)
            done.result()

    def _wait_for_the_moment(self, begin: Callable[[], Future]) -> Future:
        """Begin, and wait: until the first thing happens and some ms more, or for a random time."""
        if self.dice.random() < 0.5:
            begun = self.births.wait_for_news(begin, seconds=LONGEST_MOMENT)
            time.sleep(self.dice.uniform(0, ANSWER_SECONDS))
        else:
            begun = begin()
            time.sleep(min(LONGEST_MOMENT, self.dice.expovariate(1.5)))
        return begun

    def _ready(self) -> Script | None:
        scripts = self.dice.sample(list(self.waiting), len(self.waiting))
        return next((s for s in scripts if (life := self.waiting[s]) is None or life.settled()), None)

    def _go_on(self, script: Script) -> None:
        try:
            self.waiting[script] = next(script)
        except StopIteration:
            del self.waiting[script]

    def _report(self) -> str:
        lives = [life for life in self.waiting.values() if life]
        return "\n".join(f"{life.name}\n  wanted {life.expected()}\n  found  {life.told()}" for life in lives)


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_an_operator_killed_fifty_times_disturbs_no_training_and_does_everything_once(team):
    seed = int(os.environ.get("KILLS_SEED") or random.randrange(2**32))
    print(f"deeds and moments are chosen by KILLS_SEED={seed}; what they meet is the machine's")
    dice = random.Random(seed)
    orders = give_volume(team) / "orders"
    orders.mkdir()
    give_files(team, "toy-script", train_py=TRAIN)
    training, hurried = Life(team, "toy"), Life(team, "brief")
    names = ("resized", "at-random", "bereaved", "rested", "well", "expired", "bad", "brief")
    lives = {name: Life(team, name) for name in names} | {"gpus": Life(team, "gpus", gpus=1)}
    scripts = [
        resized(lives["resized"]),
        resized_at_random(lives["at-random"], times=10, dice=dice),
        bereaved(lives["bereaved"]),
        rested(lives["rested"]),
        successful(lives["well"], orders),
        expired(lives["expired"], orders),
        failing(lives["bad"], orders),
        brief(hurried, lives["brief"]),
        on_gpus(lives["gpus"]),
    ]
    with Births(team.lab, team.name) as births:
        stage = Stage(team, births, scripts, dice)
        restarts_before = stage.leader.restarts()
        stage.do(lambda: begin_to_train(training))
        stage.play(KILLS // 2)
        trains(team, size=2)
        stage.do(lambda: training.scales(3))
        stage.play(KILLS - 1)
        trains(team, size=3)
        log = team.kubectl("logs", "toy-master-0", "--timestamps")
        team.wait("training to be as its book says", training.settled)
        stage.do(training.ends)
        everybody = [training, hurried, *lives.values()]
        team.wait("all jobs to be gone", lambda: all(life.settled() for life in everybody))
        team.wait("nothing to be left", lambda: left_of(team) == [])
    assert len(stage.leader.killed_at) == KILLS
    assert_training_went_on(log, stage.leader.killed_at)
    for life in (training, *lives.values()):
        assert births.pods_of(life.uid) == life.made, life
        assert births.others_of(life.uid) == {"Service": 1, "EndpointSlice": 1}, life
    assert births.pods_of(hurried.uid) <= hurried.made
    assert births.others_of(hurried.uid) <= Counter({"Service": 1, "EndpointSlice": 1})
    assert [lease["metadata"]["name"] for lease in stage.leader.leases()] == [LEASE]
    team.wait("50 restarts", lambda: (stage.leader.restarts() - restarts_before).total() == KILLS)


def begin_to_train(training: Life) -> None:
    manifest = example("toy", gpus=1, args=["--pause", "0.2", "--epochs", "100000"], minReplicas=2, maxReplicas=2)
    training.applied(manifest, 2)
    training.most = 4096  # torchrun is told of no other limit


def trains(team, *, size):
    """Until the master's group of that many processes has trained some epochs."""

    def trained():
        epochs = epochs_of(team.kubectl("logs", "toy-master-0", "--timestamps").splitlines())
        return sum(epoch.world_size == size for epoch in epochs) > 5

    team.wait(f"training on {size} processes", trained, seconds=120)


def assert_training_went_on(log, kills):
    """Its processes were started twice, to begin and to grow; no epoch was skipped; from kill to kill some passed."""
    epochs = epochs_of(log.splitlines())
    assert log.count("train worker starting...") == 2
    groups = {size: list(group) for size, group in groupby(epochs, key=lambda epoch: epoch.world_size)}
    assert list(groups) == [2, 3]
    for group in groups.values():
        assert all(after.number - before.number == 1 for before, after in pairwise(group))
    assert groups[3][0].number - groups[2][-1].number in (0, 1)
    usual = median(after.time - before.time for group in groups.values() for before, after in pairwise(group))
    calm = [
        sum(start < epoch.time < end for epoch in group)
        for group in groups.values()
        for start, end in stretches(kills, seconds=max(STRETCH_SECONDS, STRETCH_EPOCHS * usual))
        if group[0].time < start and end < group[-1].time
    ]
    print(f"epochs from kill to kill: {calm}")
    assert len(calm) > KILLS // 5
    assert min(calm) > 0


def stretches(kills, *, seconds):
    """From one kill to a later one, long enough for epochs on a machine that is busy with other things."""
    start = kills[0]
    for kill in kills:
        if kill - start >= seconds:
            yield start, kill
            start = kill


def left_of(team):
    """What is in the namespace that a job could have brought, and who holds a GPU anywhere."""
    namespace = f"namespaces/{team.name}"
    paths = [f"/api/v1/{namespace}/pods", f"/api/v1/{namespace}/services"]
    paths.append(f"/apis/discovery.k8s.io/v1/{namespace}/endpointslices")
    names = [item["metadata"]["name"] for path in paths for item in team.lab.get(path)["items"]]
    pods = team.lab.get("/api/v1/pods")["items"]
    return names + [pod["metadata"]["name"] for pod in pods if "nvidia.com/gpu" in str(pod["spec"]["containers"])]
