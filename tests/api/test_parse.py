"""Whatever a user managed to store becomes a spec, or an error that says what to write instead."""

import json
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from elastic_api.invalid import InvalidSpecError
from elastic_api.job import CleanPodPolicy, Elasticity, RuntimeMode
from elastic_api.parse import MAX_DEPTH, MAX_TEMPLATE, known_part, parse_spec, parse_status
from elastic_api.status import ConditionType, RetryCause
from elastic_api.template import fingerprint, main_container
from elastic_worker.contract import CHECKPOINT_SIGNALS, RESERVED_ENV
from tests.api.jobs import make_container, make_job, make_template, with_gpus
from tests.api.mistakes import ELASTIC_MISTAKES, MISTAKES, RIGHT, Mistake

MAIN = "spec.template.spec.containers[0]"


def refusal(job: dict[str, Any], **options: Any) -> str:
    """The message with which `job` is refused."""
    with pytest.raises(InvalidSpecError) as error:
        parse_spec(job, **options)
    return str(error.value)


def of_main(**fields: Any) -> dict[str, Any]:
    return make_job(template=make_template(make_container(**fields)))


def of_pod(**fields: Any) -> dict[str, Any]:
    return make_job(template=make_template(**fields))


# --- specs


@pytest.mark.parametrize("role", ["", "master", "worker"])
def test_a_template_that_is_larger_than_256_kb_is_refused_with_its_size(role: str):
    def job(size: int) -> dict[str, Any]:
        template = make_template(make_container(args=[""]))
        template["spec"]["containers"][0]["args"] = [
            "é" * ((size - len(json.dumps(template, separators=(",", ":")))) // 2)
        ]
        return make_job(**{role: {"template": template}} if role else {"template": template})

    parse_spec(job(MAX_TEMPLATE))
    field = f"spec.{role}.template" if role else "spec.template"
    assert refusal(job(MAX_TEMPLATE + 2)).startswith(f"{field}: must be at most 256 kB as JSON, not 257 kB: bring")


def test_a_key_of_any_length_is_shown_by_its_beginning():
    message = refusal(of_pod(nodeSelector={"k" * 100_000: 1}))
    assert message.startswith("spec.template.spec.nodeSelector[kkkk")
    assert message.endswith("k...]: 1: must be a string; put a number or a truth value in quotes")
    assert len(message) < 200


def test_the_smallest_job_gets_the_defaults():
    spec = parse_spec(make_job())
    assert (spec.min_replicas, spec.max_replicas, spec.nproc_per_node) == (1, 2, "auto")
    assert spec.runtime.mode == RuntimeMode.TORCHRUN
    assert spec.elasticity.grace_period_seconds == 120
    assert spec.recovery.node_loss_seconds == 40
    assert spec.clean_pod_policy == CleanPodPolicy.RUNNING
    assert spec.sizes() == (1, 2)


def test_sizes_are_those_allowed():
    assert parse_spec(make_job(minReplicas=2, maxReplicas=9, allowedReplicas=[8, 2, 4])).sizes() == (2, 4, 8)
    assert parse_spec(make_job(minReplicas=2, maxReplicas=9, replicaStep=3)).sizes() == (2, 5, 8)


def test_nulls_in_a_template_are_absent_fields():
    job = of_pod(restartPolicy=None, volumes=None)
    job["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": None}]
    template = parse_spec(job).template
    assert template["spec"].keys() == {"containers"}
    assert main_container(template)["env"] == [{"name": "A"}]


def test_what_the_operator_does_not_read_passes_through():
    pod = {"runtimeClassName": "nvidia", "somethingNew": {"a": [1, {"b": 2.5}]}, "volumes": [{"name": "v", "nfs": {}}]}
    assert pod.items() <= parse_spec(of_pod(**pod)).template["spec"].items()


def test_parsing_leaves_the_object_as_it_is():
    job = of_pod(volumes=None)
    before = deepcopy(job)
    parse_spec(job)
    assert job == before


# --- refusals, outside templates


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"minReplicas": 0}, "spec.minReplicas: 0: must be at least 1"),
        ({"maxReplicas": 4097}, "spec.maxReplicas: 4097: must be at most 4096"),
        ({"minReplicas": "x"}, "spec.minReplicas: 'x': must be an integer"),
        ({"maxReplicas": None}, "spec.maxReplicas: must be present"),
        ({"minReplicas": 3}, "spec.maxReplicas: 2: must be at least minReplicas"),
        (
            {"maxReplicas": 4, "allowedReplicas": [8]},
            "spec.maxReplicas: 4: must be at least minReplicas, with an allowed",
        ),
        ({"allowedReplicas": []}, "spec.allowedReplicas: a list: must have at least 1 entries"),
        ({"nprocPerNode": "four"}, "spec.nprocPerNode: 'four': must be an integer from 1 to 1024, or auto"),
        ({"nprocPerNode": 0}, "spec.nprocPerNode: 0: must be an integer from 1 to 1024, or auto"),
        ({"runtime": {"mode": "MPI"}}, "spec.runtime.mode: 'MPI': must be 'Torchrun' or 'Elastic'"),
        ({"runtime": {"preload": ["a", "b c"]}}, "spec.runtime.preload[1]: 'b c': must be the name of a Python module"),
        ({"elasticity": {"checkpointPath": "c"}}, "spec.elasticity.checkpointPath: 'c': must be an absolute path"),
        ({"elasticity": {"checkpointComplete": "a/b"}}, "spec.elasticity.checkpointComplete: 'a/b': must be the name"),
        ({"elasticity": {"checkpointComplete": "a"}}, "'a': must be left out where elasticity.checkpointPath is"),
        ({"elasticity": {"checkpointSignal": "SIGKILL"}}, "spec.elasticity.checkpointSignal: 'SIGKILL': must be"),
        (
            {"elasticity": {"checkpointSignal": "SIGUSR1"}},
            "'SIGUSR1': must be left out where elasticity.checkpointPath",
        ),
        ({"suspend": "maybe"}, "spec.suspend: 'maybe': must be true or false"),
        ({"elasticity": 3}, "spec.elasticity: 3: must be a mapping"),
        ({"bogus": 1}, "spec.bogus: 1: must be absent: there is no such field"),
        ({"template": []}, "spec.template: a list: must be a mapping"),
        ({"priorityClassName": "p" * 254}, "must be at most 253 characters long"),
    ],
)
def test_a_refusal_names_field_value_and_remedy(fields: dict[str, Any], message: str):
    job = make_job()
    job["spec"] = {name: value for name, value in {**job["spec"], **fields}.items() if value is not None}
    assert message in refusal(job)


def test_each_mistake_is_named_once():
    message = refusal(make_job(minReplicas=0, nprocPerNode=[1]))
    assert message == (
        "spec.minReplicas: 0: must be at least 1; spec.nprocPerNode: a list: must be an integer from 1 to 1024, or auto"
    )


def test_of_many_mistakes_the_first_are_named_and_the_rest_counted():
    message = refusal(of_main(args=list(range(20))))
    assert f"{MAIN}.args[7]: 7:" in message
    assert f"{MAIN}.args[8]" not in message
    assert message.endswith("; and 12 more")


def test_a_long_value_is_cut():
    assert len(refusal(make_job(suspend="x" * 5000))) < 200


@pytest.mark.parametrize("spec", [None, 3, "text", [], {}])
def test_a_body_without_a_usable_spec_is_refused(spec: object):
    assert "spec" in refusal({"spec": spec})
    assert "spec.template: must be present" in refusal({})


# --- refusals inside templates


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_in_the_template_is_named_with_its_value_and_its_remedy(mistake: Mistake):
    told = ": ".join(filter(None, (mistake.field, mistake.value, mistake.remedy)))
    assert told in refusal(mistake.job)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_template_is_taken(name: str):
    parse_spec(RIGHT[name])


@pytest.mark.parametrize(
    "job",
    [
        of_pod(restartPolicy="Never"),
        of_main(args=None, command=["bash", "launch.sh"]),
        of_main(resources={"requests": {"nvidia.com/gpu": 2}, "limits": {"nvidia.com/gpu": "2"}}),
        of_main(env=[{"name": "PET_MAX_RESTARTS", "value": "3"}, {"name": "PET_RDZVX", "value": "1"}]),
        make_job(template=make_template(make_container(), make_container(name="b", env=[{"name": "WORLD_SIZE"}]))),
        make_job(template=make_template(make_container(), make_container(name="b", args=None))),
    ],
)
def test_what_is_near_a_mistake_but_none_passes(job: dict[str, Any]):
    assert parse_spec(job).template == job["spec"]["template"]


@pytest.mark.parametrize("name", [*RESERVED_ENV, "PET_RDZV_BACKEND", "PET_RDZV_ANYTHING"])
def test_a_variable_that_the_operator_sets_is_refused_with_the_reason(name: str):
    message = refusal(of_main(env=[{"name": "A", "value": "1"}, {"name": name, "value": "secret"}]))
    assert f"{MAIN}.env[1].name: '{name}': must not be set here, remove it: the operator sets it, because " in message
    assert "secret" not in message


def test_a_master_without_gpus_beside_workers_with_gpus_is_refused():
    master = {"template": make_template()}
    message = refusal(make_job(template=make_template(with_gpus(4)), master=master))
    assert message.startswith("spec.master.template: must ask for GPUs: the master trains too, and the workers have 4")
    worker = {"template": make_template(with_gpus(4))}
    assert refusal(make_job(worker=worker)).startswith("spec.template: must ask for GPUs")


def test_which_resources_are_gpus_is_a_parameter():
    job = make_job(template=make_template(with_gpus(2000)))
    assert parse_spec(job, gpu_resources=("amd.com/gpu",)).template == job["spec"]["template"]
    amd = of_main(resources={"requests": {"amd.com/gpu": 1}})
    assert "requests[amd.com/gpu]: 1: must stand in limits" in refusal(amd, gpu_resources=("amd.com/gpu",))


def test_mistakes_are_found_in_every_template_that_pods_are_made_from():
    bad = {"template": make_template(restartPolicy="Always")}
    message = refusal(make_job(master=bad, worker=bad))
    assert "spec.master.template.spec.restartPolicy" in message
    assert "spec.worker.template.spec.restartPolicy" in message


def test_a_template_that_no_pod_is_made_from_may_be_anything():
    own = {"template": make_template()}
    assert parse_spec(make_job(template={}, master=own, worker=own)).template == {}
    assert "spec.template.spec: must be present" in refusal(make_job(template={}, master=own))


def test_a_spec_of_any_depth_is_refused_rather_than_followed():
    deep: dict[str, Any] = {}
    for _ in range(9000):
        deep = {"a": [deep]}
    job = make_job()
    job["spec"]["template"]["spec"]["x"] = deep
    assert refusal(job) == f"spec: must not be nested deeper than {MAX_DEPTH} levels"


def test_fields_of_a_later_release_are_named_and_left_out_wherever_they_stand():
    job = make_job(tomorrow=1, elasticity={"scaleUpDelaySeconds": 7, "tomorrow": {"a": [1]}})
    known, warning = known_part(job["spec"])
    assert warning.startswith("spec.elasticity.tomorrow: this release of the operator has no such field")
    assert "; spec.tomorrow: this release" in warning
    assert parse_spec({"spec": known}).elasticity.scale_up_delay_seconds == 7
    assert job["spec"]["tomorrow"] == 1, "the object is as it was"


def test_what_is_wrong_beside_them_stays_wrong():
    known, warning = known_part(make_job(tomorrow=1, minReplicas="x")["spec"])
    assert "spec.tomorrow" in warning
    assert refusal({"spec": known}) == "spec.minReplicas: 'x': must be an integer"


def test_where_all_fields_are_known_nothing_is_left_out():
    for spec in (make_job()["spec"], {"template": [{}]}):
        assert known_part(spec) == (spec, "")


def test_a_spec_of_any_depth_is_not_searched():
    deep: dict[str, Any] = {}
    for _ in range(9000):
        deep = {"a": deep}
    spec = make_job()["spec"] | {"tomorrow": deep}
    known, warning = known_part(spec)
    assert known is spec
    assert not warning


def test_what_elastic_mode_adds_may_be_called_anything_in_torchrun_mode():
    for mistake in ELASTIC_MISTAKES:
        spec = {name: value for name, value in mistake.job["spec"].items() if name != "runtime"}
        assert parse_spec({"spec": spec}).runtime.mode == RuntimeMode.TORCHRUN


def test_a_runtime_with_fields_that_are_as_before_has_the_fingerprint_it_had_before():
    assert fingerprint(parse_spec(make_job()), "worker") == "228f022990ba9563"
    assert fingerprint(parse_spec(make_job(runtime={"inject": True})), "worker") == "228f022990ba9563"
    elastic = {"mode": "Elastic"}
    others = [elastic, {**elastic, "inject": False}, {**elastic, "python": "p"}, {**elastic, "preload": ["numpy"]}]
    assert len({fingerprint(parse_spec(make_job(runtime=runtime)), "worker") for runtime in [{}, *others]}) == 5


# --- status


def test_a_job_without_a_status_has_an_empty_one():
    for body in ({}, {"status": None}, {"status": {}}, {"status": 3}):
        assert parse_status(body).incarnation == 0


def test_a_status_written_by_a_newer_operator_is_read():
    condition = {"type": "Novel", "status": "True", "reason": "New", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ready = {**condition, "type": "Ready", "novelty": 1}
    status = parse_status({"status": {"novelty": {}, "restarts": 3, "conditions": [condition, ready]}})
    found = status.condition(ConditionType.READY)
    assert found is not None
    assert found.last_transition_time == datetime(2026, 1, 1, tzinfo=UTC)
    assert status.restarts == 3


@pytest.mark.parametrize(
    ("older", "cause"),
    [
        ({"reason": "toy-worker-0 failed with exit code 1: the scheduler cannot place it."}, "PodFailed"),
        ({"reason": "3 losses in two minutes. Lost toy-worker-0; not counted as a failure."}, "PodLost"),
        ({"reason": "the API server takes no more pods of this job: exceeded quota.", "size": 3}, "FailedCreate"),
        ({"reason": "the scheduler cannot place toy-worker-1: no cpu", "size": 3}, "Unschedulable"),
        ({"reason": "No node was added within 900 s for toy-master-0: no", "waitsFor": "Nodes"}, "NodesNotProvisioned"),
        ({"reason": "toy-master-0 has not started on node n1 in 300 s: no such image", "size": 1}, "PodsNotStarted"),
    ],
)
def test_the_cause_of_a_retry_of_an_older_operator_is_parsed_from_its_reason_and_written(older, cause):
    status = parse_status({"status": {"retry": {"notBefore": "2026-01-01T00:00:00Z", "attempt": 2, **older}}})
    retry = status.retry or status.failed_size
    assert retry is not None
    assert (retry.cause, retry.attempt) == (RetryCause(cause), 2)
    assert retry.model_dump(mode="json", by_alias=True, exclude_none=True)["cause"] == cause
    written = {**retry.model_dump(mode="json", by_alias=True), "reason": "other words"}
    status = parse_status({"status": {"retry": written}})
    again = status.retry or status.failed_size
    assert again is not None
    assert again.cause == cause
    assert (status.retry is None) is (cause not in ("PodFailed", "PodLost"))


def test_a_field_of_the_status_that_cannot_be_read_counts_as_absent_and_the_others_stay():
    status = parse_status({"status": {"incarnation": 4, "startTime": "2026-01-01T00:00:00", "retry": {"reason": 1}}})
    assert (status.incarnation, status.start_time, status.retry) == (4, None, None)


def test_the_signals_that_a_spec_may_name_are_those_that_launchers_know():
    known = Elasticity.model_fields["checkpoint_signal"].annotation
    assert get_args(known) == ("", *CHECKPOINT_SIGNALS)
