"""What there is before the first minute: the cluster, teams with policies, jobs enough, and two that train."""

from __future__ import annotations

from random import Random

from devcluster.progress import Progress
from tests.simulate import server as kinds
from tests.soak.edits import real_policy
from tests.soak.mirror import LiveServer
from tests.soak.site import Site
from tests.soak.stage import Stage
from tests.soak.tenant import AS_TENANT, HOSTILE, POLICY, Tenant
from tests.soak.trainings import RealTraining
from tests.soak.world import GUESTS, REAL_TEAMS, TRAINERS, SoakWorld

NODE_LOSS_SECONDS = {"north": 10, "south": 300}
"""One training gives a lost node's pods up soon, the other one waits for the node."""


def set_up(name: str, seed: int, progress: Progress) -> Stage:
    """All of it, from nothing."""
    rng = Random(seed)
    site = Site.make(name, progress)
    world = SoakWorld(site, rng)
    tenant = Tenant(LiveServer(site.client(AS_TENANT), namespace=HOSTILE), world.machines)
    stage = Stage(site, world, tenant)
    for team in REAL_TEAMS:
        policy = {"metadata": {"name": team}, "spec": real_policy(rng, team)}
        stage.world.whole.create(kinds.POLICIES, policy)
    site.lab.kubectl("create", "namespace", GUESTS)
    stage.world.whole.create(kinds.POLICIES, {"metadata": {"name": HOSTILE}, "spec": POLICY})
    site.lab.kubectl("create", "rolebinding", HOSTILE, "-n", HOSTILE, "--clusterrole=edit", f"--user={HOSTILE}")
    stage.world.fill_up()
    with progress.step("two jobs begin to train"):
        for team in TRAINERS:
            stage.trainings[team] = RealTraining(site, team)
            stage.trainings[team].begins(node_loss_seconds=NODE_LOSS_SECONDS[team])
        for training in stage.trainings.values():
            training.trains_at_all()
    return stage
