"""The quota demo: three teams on six nodes with one GPU each, two GPUs guaranteed to each team.

team-a's job runs on two to four GPUs. team-b creates and deletes two plain pods; while these exist, team-a has its
guarantee and no more. team-c has the same job as team-a and may not borrow: it has two GPUs throughout.
"""

from __future__ import annotations

import time
from pathlib import Path

import yaml
from rich.console import Console

from demo.costs import show_costs
from demo.install import REPOSITORY
from demo.journal import pauses_of
from demo.kube import Kube
from demo.lives import Life, Step
from demo.plot import svg_of
from demo.quota_report import Report
from demo.reclaims import TakenBack, all_of, taken_back_by
from demo.stage import Stage, Way
from demo.timeline import Timeline
from demo.witness import Witness
from devcluster import cache
from devcluster.cluster import Cluster
from elastic_api.job import PLURAL, RuntimeMode
from elastic_api.status import Phase, SizeReason
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

NODES, GPUS = 6, 1
TEAM_A, TEAM_B, TEAM_C = TEAMS = ("team-a", "team-b", "team-c")
JOB = "two-to-four"
SMALL, BIG = 2, 4
EPOCHS = 4
"""This many epochs on a new number of processes count as training."""
RECLAIMED = "QuotaReclaimed"
EXAMPLES = REPOSITORY / "examples"
FOLDER = EXAMPLES / JOB


def run(
    cluster: Cluster, kube: Kube, console: Console, *, way: Way, rounds: int = 1, losing_a_node: bool = True
) -> Report:
    """Run the whole demo; team-b creates and deletes its pods `rounds` times. Raises DemoError if an expectation
    fails.
    """
    _start_afresh(cluster, kube)
    timeline = Timeline(kube, TEAM_A, JOB, console)
    taken_back: list[TakenBack] = []
    told: list[str] = []
    with Witness(kube, TEAMS, started=timeline.started) as witness:
        stage = Stage(kube, timeline, witness, console, way=way, quiet=frozenset({TEAM_C}))
        _team_c_stays_within_its_own(stage)
        _team_a_starts_beside_team_b(stage)
        _team_a_borrows(stage)
        for _ in range(rounds):
            taken_back.append(_team_b_takes_its_gpus_back(stage))
            told = told or _both_sides_were_told(stage)
            _team_a_borrows_again(stage)
            _training_went_on_from_its_checkpoint(stage)
        if losing_a_node:
            _a_node_is_lost(stage, cluster)
    show_costs(console, {str(way): timeline.epochs})
    picture = cache.root() / "demo-quota.svg"
    picture.write_text(
        svg_of({str(way): timeline.epochs}, title="team-a's job, on what is its own and on what team-b leaves idle")
    )
    console.print(f"As a picture: {picture}")
    return Report(all_of(taken_back), told, timeline.epochs, stage.done)


def _start_afresh(cluster: Cluster, kube: Kube) -> None:
    """Create the teams, their policies and the training script; remove an earlier demo."""
    for team in TEAMS:
        cluster.shared_claim(team)
        kube.kubectl("delete", PLURAL, "--all", "-n", team, "--wait", "--timeout=120s")
        kube.kubectl("delete", "pods", "--all", "-n", team, "--grace-period=1", "--wait", "--timeout=120s")
        kube.kubectl("delete", "events", "--all", "-n", team)
        for example in ("toy", "library"):
            script = kube.kubectl(
                *("create", "configmap", f"{example}-script", "-n", team),
                *(f"--from-file={EXAMPLES / example / 'train.py'}", "--dry-run=client", "-o", "yaml"),
            )
            kube.kubectl("apply", "-f", "-", input_text=script)
    kube.kubectl("apply", "-f", str(FOLDER / "policies.yaml"))


def _team_c_stays_within_its_own(stage: Stage) -> None:
    stage.act("1. team-c may not borrow: its job stays on two GPUs, beside the four of team-a and team-b")
    _apply_job(stage, TEAM_C)
    limit = SizeReason.BORROWING_DISABLED
    stage.expect(
        f"team-c's job to run with {SMALL} pods, limited by {limit}",
        lambda: _pods(stage, TEAM_C, phase=Phase.RUNNING) == SMALL and stage.limited_by(TEAM_C, JOB)[0] == limit,
    )
    stage.console.print(f"  {TEAM_C}/{JOB}: {stage.limited_by(TEAM_C, JOB)[1]}", style="cyan")


def _team_a_starts_beside_team_b(stage: Stage) -> None:
    stage.act("2. four GPUs are left; team-b uses its two, so team-a's job starts with two")
    _notebooks_come(stage)
    stage.expect("team-b's notebooks to run", lambda: len(_notebooks_that_run(stage)) == SMALL)
    _apply_job(stage, TEAM_A)
    stage.expect_training(f"team-a's job to train on {SMALL} GPUs", world_size=SMALL, more_epochs=EPOCHS)
    _show_limit(stage)
    _team_c_is_as_it_was(stage)


def _team_a_borrows(stage: Stage) -> None:
    stage.act("3. team-b goes home; team-a's job grows by itself")
    _notebooks_go(stage)
    stage.expect_training(f"team-a's job to train on {BIG} GPUs", world_size=BIG, more_epochs=EPOCHS)
    _team_c_is_as_it_was(stage)


def _team_b_takes_its_gpus_back(stage: Stage) -> TakenBack:
    stage.act("4. team-b comes back; two workers of team-a's job make room, and it goes on with two")
    stage.look()
    before = [life for life in stage.witness.lives(TEAM_A) if life.alive]
    _notebooks_come(stage)
    stage.expect("team-b's notebooks to run", lambda: len(_notebooks_that_run(stage)) == SMALL)
    preemptors = _notebooks_that_run(stage)
    stage.expect_training(f"team-a's job to go on with {SMALL} GPUs", world_size=SMALL, more_epochs=EPOCHS)
    _only_workers_left(stage, before)
    _training_went_on_from_its_checkpoint(stage)
    _team_c_is_as_it_was(stage)
    taken_back = taken_back_by(preemptors, [life for team in (TEAM_A, TEAM_C) for life in stage.witness.lives(team)])
    stage.check(
        f"as many GPUs to be evicted as were requested, for {SMALL} pods",
        taken_back.ratio == 1.0 and len(taken_back.reclaims) == SMALL,
        taken_back,
    )
    return taken_back


def _team_a_borrows_again(stage: Stage) -> None:
    stage.act("5. team-b goes home; team-a's job grows again")
    _notebooks_go(stage)
    stage.expect_training(f"team-a's job to train on {BIG} GPUs again", world_size=BIG, more_epochs=EPOCHS)
    _team_c_is_as_it_was(stage)


def _a_node_is_lost(stage: Stage, cluster: Cluster) -> None:
    worker = max(_alive(stage, TEAM_A), key=lambda life: life.name)
    stage.act(f"6. the node of {worker.name} loses its power; the job goes on with the pods that are left")
    stage.say(f"node {worker.node} is switched off")
    node = cluster.node(worker.node)
    node.kill()
    try:
        size = BIG - 1
        stage.expect_training(f"team-a's job to go on with {size} GPUs", world_size=size, more_epochs=EPOCHS)
        stage.expect("the lost worker to be given up", lambda: len(_alive(stage, TEAM_A)) == size)
        _team_c_is_as_it_was(stage)
    finally:
        stage.say(f"node {worker.node} is switched on again")
        node.restart()
        cluster.wait_ready()


# -- actions of users --------------------------------------------------------------------------------------------------


def _apply_job(stage: Stage, team: str) -> None:
    """Apply the example with a new checkpoint, so that each demo begins at epoch 0. Elastic mode gets its path."""
    job = yaml.safe_load((FOLDER / "job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    container, fresh = pod["containers"][0], f"{JOB}-{time.time():.0f}.pt"
    container["args"] = [word.replace(f"{JOB}.pt", fresh) for word in container["args"]]
    if stage.way is Way.LIBRARY:
        container["args"] = ["/workspace/train.py", "--epochs", "100000", "--checkpoints", f"/checkpoints/{fresh}"]
        pod["volumes"][0]["configMap"]["name"] = "library-script"
    if stage.way is not Way.TORCHRUN:
        job["spec"]["runtime"] = {"mode": str(RuntimeMode.ELASTIC)}
        job["spec"]["elasticity"]["checkpointPath"] = f"/checkpoints/{fresh}"
    stage.kube.kubectl("apply", "-n", team, "-f", "-", input_text=yaml.safe_dump(job))
    stage.timeline.say(f"{team}: kubectl apply -f {_shown(FOLDER / 'job.yaml')}", style="bold")


def _notebooks_come(stage: Stage) -> None:
    manifest = FOLDER / "notebooks.yaml"
    stage.say(f"{TEAM_B}: kubectl apply -f {_shown(manifest)}")
    stage.kube.kubectl("apply", "-n", TEAM_B, "-f", str(manifest))


def _notebooks_go(stage: Stage) -> None:
    manifest = FOLDER / "notebooks.yaml"
    stage.say(f"{TEAM_B}: kubectl delete -f {_shown(manifest)}")
    stage.kube.kubectl("delete", "-n", TEAM_B, "-f", str(manifest), "--wait")


def _shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


# -- observations ------------------------------------------------------------------------------------------------------


def _alive(stage: Stage, team: str) -> list[Life]:
    return [life for life in stage.witness.lives(team) if life.alive]


def _notebooks_that_run(stage: Stage) -> list[Life]:
    return [life for life in _alive(stage, TEAM_B) if life.at(Step.RUNNING) is not None]


def _pods(stage: Stage, team: str, *, phase: Phase) -> int:
    """The number of pods of the team's job, 0 while it is not in that phase."""
    status = stage.status(team, JOB)
    return status.replicas if any(c.type == "Ready" and c.reason == phase for c in status.conditions) else 0


def _show_limit(stage: Stage) -> None:
    reason, message = stage.limited_by(TEAM_A, JOB)
    stage.console.print(f"  {TEAM_A}/{JOB} is limited by {reason}: {message}", style="cyan")


def _team_c_is_as_it_was(stage: Stage) -> None:
    """Check that team-c has the same two pods since the beginning, and the same reason for not having more."""
    lives = stage.witness.lives(TEAM_C)
    stage.check(
        f"team-c's job to have the same {SMALL} pods since the beginning",
        len(lives) == SMALL and all(life.alive for life in lives),
        [(life.name, list(life.seen)) for life in lives],
    )
    reason, message = stage.limited_by(TEAM_C, JOB)
    stage.check(
        f"team-c's job to be limited by {SizeReason.BORROWING_DISABLED}",
        reason == SizeReason.BORROWING_DISABLED,
        message,
    )


def _only_workers_left(stage: Stage, before: list[Life]) -> None:
    """Check that the master and one worker of the earlier pods still exist."""
    left, kept = [life.name for life in before if not life.alive], [life.name for life in before if life.alive]
    stage.check(
        f"{BIG - SMALL} workers of {BIG} pods to have gone, not the master",
        len(before) == BIG and all(name.startswith(f"{JOB}-{ROLE_WORKER}-") for name in left) and len(kept) == SMALL,
        f"gone: {left}, there: {kept}",
    )
    stage.check("the master to be the same pod", f"{JOB}-{ROLE_MASTER}-0" in kept, kept)


def _training_went_on_from_its_checkpoint(stage: Stage) -> None:
    """Check that no epoch is repeated if changes wait for a checkpoint."""
    pauses = pauses_of(stage.timeline.epochs)
    most, but = (1, " but the one under way") if stage.way is Way.TORCHRUN else (0, "")
    stage.check(
        f"no epoch to be trained twice{but}, and none to be left out",
        all(pause.repeated <= most and pause.after.number <= pause.before.number + 1 for pause in pauses),
        [(pause.before, pause.after) for pause in pauses],
    )


def _both_sides_were_told(stage: Stage) -> list[str]:
    """Check the events of the job that lost GPUs and of the pods that got them, and the job's history."""
    stage.expect("events on who lost and on who gained", lambda: all(_events(stage)))
    lost, gained = _events(stage)
    stage.check("who lost to be told for whom", all(f"{TEAM_B}/" in note for note in lost), lost)
    stage.expect(
        f"the job's history to have {RECLAIMED}",
        lambda: any(change.reason == RECLAIMED for change in stage.status(TEAM_A, JOB).history),
    )
    return [*lost, *gained]


def _events(stage: Stage) -> tuple[list[str], list[str]]:
    """The events of team-a's job, and those of team-b's pods."""
    lost = [note for about, note in stage.events(TEAM_A, RECLAIMED) if about == JOB]
    return lost, [note for _, note in stage.events(TEAM_B, RECLAIMED)]
