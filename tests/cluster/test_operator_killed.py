"""The operator is killed, again and again, at any moment. Training goes on, and the books are right.

While one job trains, others change their size. With each change the operator's process is killed, some time before,
while or after it answers; half of the changes it finds done when it is back. What else it may be about when it dies is
in tests/virtual/test_deaths.py, write by write.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby, pairwise
from statistics import median

import pytest

from demo.journal import epochs_of
from elastic_api.job import PLURAL
from tests.cluster.births import Births
from tests.cluster.examples import TRAIN, example, give_files, give_volume
from tests.cluster.lab import Object, Team
from tests.cluster.leader import LEASE, Leader
from tests.cluster.templates import command, job

KILLS = 50
LONGEST_MOMENT = 3.0
ANSWER_SECONDS = 0.05
"""The operator's writes in answer to something come within about so long."""
STRETCH_SECONDS, STRETCH_EPOCHS = 5.0, 20
"""In so long, or while so many usual epochs take on this machine, there is one whatever else the machine does."""
SIZES = [1, 2, 3, 4, 5]
COUNTERS = ("replicas", "readyReplicas", "resizes", "restarts", "failures", "incarnation")


class Resized:
    """A job that runs on so many pods, what is done to it, and what its status and its pods must come to.

    The counters are exact: a decision carried out twice, or half, shows.
    """

    def __init__(self, team: Team, manifest: Object, size: int) -> None:
        self.team, self.manifest, self.name = team, manifest, manifest["metadata"]["name"]
        self.size, self.made, self.resizes = size, size, 0

    def starts(self) -> None:
        """Somebody applies it."""
        self.team.apply(self.manifest)

    def scales(self, size: int) -> None:
        """kubectl scale."""
        self.team.scale(self.name, size)
        self.made += max(0, size - self.size)
        self.size, self.resizes = size, self.resizes + 1

    def settled(self) -> bool:
        """Whether the cluster says what was done."""
        status = self.team.status(self.name)
        found = [status.get(counter, 0) for counter in COUNTERS]
        pods = len(self.team.all_pods(self.name))
        return [*found, pods] == [self.size, self.size, self.resizes, 0, 0, 1, self.size]


class Hunt:
    """The leader, who is killed with each thing that is done."""

    def __init__(self, team: Team, births: Births, rng: random.Random) -> None:
        self.team, self.leader, self.births, self.rng = team, Leader(team.lab), births, rng

    def resize(self, jobs: list[Resized], *, kills: int) -> None:
        """One job after the other, whichever is as it should be, until there were so many kills."""
        while len(self.leader.killed_at) < kills:
            order = self.rng.sample(jobs, len(jobs))
            found = self.team.wait(
                "a job to be as it should", lambda order=order: [each for each in order if each.settled()]
            )
            size = self.rng.choice([size for size in SIZES if size != found[0].size])
            self.kill_with(lambda found=found, size=size: found[0].scales(size))

    def kill_with(self, deed: Callable[[], object]) -> None:
        """The deed, and the kill. The operator is at work by then, or it is on its way after the last kill."""
        if self.rng.random() < 0.5:
            self.leader.wait_until_leads()
        with ThreadPoolExecutor() as pool:
            pid = self.leader.wait_until_there()
            done = self._wait_for_the_moment(lambda: pool.submit(deed))
            self.leader.kill(pid)
            done.result()

    def _wait_for_the_moment(self, begin: Callable[[], Future]) -> Future:
        """Begin, and wait: until the first thing happens and some ms more, or for a random time."""
        if self.rng.random() < 0.5:
            begun = self.births.wait_for_news(begin, seconds=LONGEST_MOMENT)
            time.sleep(self.rng.uniform(0, ANSWER_SECONDS))
        else:
            begun = begin()
            time.sleep(min(LONGEST_MOMENT, self.rng.expovariate(1.5)))
        return begun


@pytest.mark.extended
@pytest.mark.timeout(900)
def test_fifty_kills_of_the_operator_disturb_no_training(team):
    seed = int(os.environ.get("KILLS_SEED") or random.randrange(2**32))
    print(f"deeds and moments are chosen by KILLS_SEED={seed}; what they meet is the machine's")
    rng = random.Random(seed)
    give_volume(team)
    give_files(team, "toy-script", train_py=TRAIN)
    arguments = ["--pause", "0.2", "--epochs", "100000"]
    training = Resized(team, example("toy", gpus=1, args=arguments, minReplicas=2, maxReplicas=2), 2)
    most = max(SIZES)
    others = [Resized(team, job(f"other-{i}", max=most, template=command(gpus=0)), most) for i in range(4)]
    others.append(Resized(team, job("on-gpus", max=most), most))
    with Births(team.lab, team.name) as births:
        hunt = Hunt(team, births, rng)
        restarts_before = hunt.leader.restarts()
        for each in (training, *others):
            hunt.kill_with(each.starts)
        hunt.resize(others, kills=KILLS // 2)
        trains(team, size=2)
        hunt.kill_with(lambda: training.scales(3))
        hunt.resize(others, kills=KILLS - 1)
        trains(team, size=3)
        log = team.kubectl("logs", "toy-master-0", "--timestamps")
        uids = {}
        for each in (training, *others):
            team.wait(f"{each.name} to be as it should", each.settled)
            uids[each.name] = team.job(each.name)["metadata"]["uid"]
        hunt.kill_with(lambda: team.kubectl("delete", PLURAL, "--all", "--wait=false"))
        team.wait("nothing to be left", lambda: left_of(team) == [])
    assert len(hunt.leader.killed_at) == KILLS
    assert_training_went_on(log, hunt.leader.killed_at)
    for each in (training, *others):
        assert births.pods_of(uids[each.name]) == {1: each.made}, each.name
        assert births.others_of(uids[each.name]) == {"Service": 1, "EndpointSlice": 1}, each.name
    assert [lease["metadata"]["name"] for lease in hunt.leader.leases()] == [LEASE]
    team.wait("50 restarts", lambda: (hunt.leader.restarts() - restarts_before).total() == KILLS)


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
