"""Every CEL rule of the job lets the right job pass and refuses the wrong one with a remedy."""

from typing import Any

import pytest

from elastic_api.job_crd import RULES
from tests.api.jobs import make_container, make_job, make_template
from tests.api.mistakes import Mistake
from tests.apiserver.input.manifests import in_metadata, in_spec
from tests.apiserver.jobs_api import Jobs, accepted, refused

pytestmark = pytest.mark.apiserver

NAME_LENGTH = "must be at most 51 characters long"
NAME_SYNTAX = "must be lower-case letters, digits and '-'"
MIN_MAX = "must be at least minReplicas; for no pods at all set suspend to true"
WITHIN = "every size must be within minReplicas and maxReplicas"
EXCLUSIVE = "must be absent beside allowedReplicas"
NPROC = "must be an integer from 1 to 1024, or auto"
MODULES = "every entry must be the name of a Python module"
ABSOLUTE = "must be an absolute path in the main container"
FILE_NAME = "must be the name of a file without its folder"
NEEDS_PATH = "must be left out where elasticity.checkpointPath is"
ELASTIC_ONLY = "must be left out where runtime.mode is Torchrun; or set runtime.mode to Elastic"

ELASTIC = {"mode": "Elastic"}

REFUSED = [
    in_metadata("", "a" * 52, NAME_LENGTH, name="a" * 52),
    in_metadata("", "1a", NAME_SYNTAX, name="1a"),
    in_metadata("", "a.b", NAME_SYNTAX, name="a.b"),
    in_spec("maxReplicas", "2", MIN_MAX, minReplicas=3, maxReplicas=2),
    in_spec("allowedReplicas", "[1]", WITHIN, minReplicas=2, maxReplicas=4, allowedReplicas=[1, 2]),
    in_spec("allowedReplicas", "[7, 9]", WITHIN, minReplicas=2, maxReplicas=4, allowedReplicas=[7, 2, 9]),
    in_spec("replicaStep", "3", EXCLUSIVE, allowedReplicas=[1, 2], replicaStep=3),
    in_spec("", "0", NPROC, nprocPerNode=0),
    in_spec("", "1025", NPROC, nprocPerNode=1025),
    in_spec("", '"4"', NPROC, nprocPerNode="4"),
    in_spec("", '"gpu"', NPROC, nprocPerNode="gpu"),
    in_spec("runtime.preload", "", MODULES, runtime={"mode": "Elastic", "preload": ["torch", "a-b"]}),
    in_spec("runtime.preload", "", MODULES, runtime={"mode": "Elastic", "preload": ["a,b"]}),
    in_spec("elasticity.checkpointPath", "", ABSOLUTE, runtime=ELASTIC, elasticity={"checkpointPath": "ckpt"}),
    in_spec(
        "elasticity.checkpointComplete",
        "a/b",
        FILE_NAME,
        runtime=ELASTIC,
        elasticity={"checkpointPath": "/c", "checkpointComplete": "a/b"},
    ),
    in_spec(
        "elasticity.checkpointComplete",
        "done",
        NEEDS_PATH,
        runtime=ELASTIC,
        elasticity={"checkpointComplete": "done"},
    ),
    in_spec(
        "elasticity.checkpointSignal",
        "SIGUSR1",
        NEEDS_PATH,
        runtime=ELASTIC,
        elasticity={"checkpointSignal": "SIGUSR1"},
    ),
    in_spec("runtime.inject", "", ELASTIC_ONLY, runtime={"inject": False}),
    in_spec("runtime.python", "", ELASTIC_ONLY, runtime={"python": "python3.12"}),
    in_spec("runtime.preload", "", ELASTIC_ONLY, runtime={"preload": ["numpy"]}),
    in_spec("elasticity.checkpointPath", "", ELASTIC_ONLY, elasticity={"checkpointPath": "/ckpt"}),
    in_spec("elasticity.checkpointComplete", "", ELASTIC_ONLY, elasticity={"checkpointComplete": "done"}),
    in_spec("elasticity.checkpointSignal", "", ELASTIC_ONLY, elasticity={"checkpointSignal": "SIGUSR2"}),
    in_spec("elasticity.alignTimeoutSeconds", "", ELASTIC_ONLY, elasticity={"alignTimeoutSeconds": 5}),
    in_spec("recovery.stallSeconds", "", ELASTIC_ONLY, recovery={"stallSeconds": 60}),
]

ACCEPTED = [
    make_job("a" * 51),
    make_job("a-1"),
    make_job("a"),
    make_job(minReplicas=2, maxReplicas=2),
    make_job(minReplicas=1, maxReplicas=4096),
    make_job(minReplicas=2, maxReplicas=4, allowedReplicas=[2, 4]),
    make_job(minReplicas=1, maxReplicas=64, allowedReplicas=list(range(1, 65))),
    make_job(minReplicas=1, maxReplicas=4, replicaStep=3),
    make_job(nprocPerNode=1),
    make_job(nprocPerNode=1024),
    make_job(nprocPerNode="auto"),
    make_job(runtime={"inject": True, "python": "", "preload": []}),
    make_job(elasticity={"checkpointPath": "", "alignTimeoutSeconds": 60}, recovery={"stallSeconds": 1800}),
    make_job(runtime=ELASTIC),
    make_job(
        runtime={**ELASTIC, "inject": False, "python": "/opt/conda/bin/python", "preload": ["numpy", "torch.nn._x1"]},
        elasticity={"checkpointPath": "/checkpoints", "checkpointComplete": "*.done", "alignTimeoutSeconds": 0},
        recovery={"stallSeconds": 60},
    ),
]

OTHER = make_template(make_container(image="registry.example/train:2"))

FIXED = {
    "template": ({}, {"template": OTHER}),
    "master": ({}, {"master": {"template": OTHER}}),
    "worker": ({"worker": {"template": make_template()}}, {"worker": {"template": OTHER}}),
    "nprocPerNode": ({}, {"nprocPerNode": 2}),
}
"""Fields that stay while the job runs: what the job is made with, and a change."""


def stays(field: str) -> str:
    return f"must stay as it is while the job runs; set spec.suspend to true first, then change {field}"


def test_no_rule_is_without_a_test():
    tested = [mistake.remedy for mistake in REFUSED] + [stays(field) for field in (*FIXED, "runtime")]
    untested = [rule.message for rule in RULES if not any(rule.message.startswith(text) for text in tested)]
    assert untested == []


@pytest.mark.parametrize("mistake", REFUSED, ids=str)
def test_a_job_that_breaks_a_rule_is_refused_with_what_to_write(jobs: Jobs, mistake: Mistake):
    causes = refused(jobs.create(mistake.job))
    assert list(causes) == [mistake.field]
    assert mistake.value in causes[mistake.field]
    assert mistake.remedy in causes[mistake.field]


@pytest.mark.parametrize("job", ACCEPTED)
def test_a_job_that_keeps_the_rules_is_accepted(jobs: Jobs, job: dict[str, Any]):
    accepted(jobs.create(job))


@pytest.mark.parametrize("field", FIXED)
def test_while_the_job_runs_what_its_pods_are_made_from_stays(jobs: Jobs, field: str):
    before, after = FIXED[field]
    stored = accepted(jobs.create(make_job(**before)))
    causes = refused(jobs.patch("toy", {"spec": after}))
    assert list(causes) == [f"spec.{field}"]
    assert causes[f"spec.{field}"].endswith(stays(field))
    assert jobs.get("toy")["spec"] == stored["spec"]


@pytest.mark.parametrize("field", FIXED)
def test_in_a_suspended_job_it_may_change_also_in_the_update_that_resumes(jobs: Jobs, field: str):
    before, after = FIXED[field]
    accepted(jobs.create(make_job(**before, suspend=True)))
    stored = accepted(jobs.patch("toy", {"spec": {**after, "suspend": False}}))
    assert stored["spec"][field] == after[field]


def test_the_mode_may_change_in_a_suspended_job_only(jobs: Jobs):
    accepted(jobs.create(make_job()))
    causes = refused(jobs.patch("toy", {"spec": {"runtime": ELASTIC}}))
    assert causes["spec.runtime"].endswith(stays("runtime"))
    accepted(jobs.patch("toy", {"spec": {"suspend": True}}))
    after = accepted(jobs.patch("toy", {"spec": {"runtime": ELASTIC, "suspend": False}}))["spec"]["runtime"]
    assert after == {"mode": "Elastic", "inject": True, "python": "", "preload": []}


def test_the_update_that_suspends_cannot_change_it_yet(jobs: Jobs):
    accepted(jobs.create(make_job()))
    assert "spec.template" in refused(jobs.patch("toy", {"spec": {"template": OTHER, "suspend": True}}))
    accepted(jobs.patch("toy", {"spec": {"suspend": True}}))
    accepted(jobs.patch("toy", {"spec": {"template": OTHER}}))


def test_while_the_job_runs_a_roles_own_template_cannot_be_removed(jobs: Jobs):
    accepted(jobs.create(make_job(master={"template": OTHER})))
    assert "spec.master" in refused(jobs.patch("toy", {"spec": {"master": None}}))
    accepted(jobs.patch("toy", {"spec": {"suspend": True}}))
    assert "master" not in accepted(jobs.patch("toy", {"spec": {"master": None}}))["spec"]


@pytest.mark.parametrize(
    "change",
    [
        {"minReplicas": 2},
        {"maxReplicas": 9},
        {"allowedReplicas": [1, 2]},
        {"replicaStep": 2},
        {"elasticity": {"gracePeriodSeconds": 5}},
        {"recovery": {"nodeLossSeconds": 5}},
        {"priorityClassName": "high"},
        {"suspend": True},
        {"activeDeadlineSeconds": 9},
        {"ttlSecondsAfterFinished": 9},
        {"cleanPodPolicy": "All"},
    ],
)
def test_everything_else_may_change_while_the_job_runs(jobs: Jobs, change: dict[str, Any]):
    roles = {"master": {"template": OTHER}, "worker": {"template": OTHER}}
    accepted(jobs.create(make_job(**roles)))
    before = jobs.get("toy")["spec"]
    after = accepted(jobs.patch("toy", {"spec": change}))["spec"]
    changed = {field: {**before[field], **new} if isinstance(new, dict) else new for field, new in change.items()}
    assert after == {**before, **changed} != before


def test_a_large_template_does_not_exhaust_the_budget_of_the_rules(jobs: Jobs):
    env = [{"name": f"VARIABLE_{n}", "value": "x" * 100} for n in range(3000)]
    template = make_template(make_container(env=env))
    accepted(jobs.create(make_job(template=template, worker={"template": template})))
    accepted(jobs.patch("toy", {"spec": {"maxReplicas": 3}}))
