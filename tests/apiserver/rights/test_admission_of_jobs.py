"""At `kubectl apply` the API server says of a template what the operator would say later in a condition."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from elastic_operator.api import elastic, template_rules
from elastic_operator.api.invalid import InvalidSpecError
from elastic_operator.api.parse import parse_spec
from elastic_worker import contract
from tests.api.jobs import make_container, make_job, make_template, with_gpus
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually
from tests.apiserver.rights import account
from tests.apiserver.rights.conftest import Estate, Install
from tests.devcluster.pods import kubectl

pytestmark = pytest.mark.apiserver

Job = dict[str, Any]


def job(container: Job | None = None, *more: Job, mode: str = "Torchrun", pod: Job | None = None, **spec: Any) -> Job:
    """A job with these containers."""
    return make_job(
        template=make_template(container or make_container(), *more, **(pod or {})), runtime={"mode": mode}, **spec
    )


def with_env(*names: str, mode: str = "Torchrun") -> Job:
    """A job that sets these variables."""
    return job(make_container(env=[{"name": name, "value": "1"} for name in names]), mode=mode)


def requesting(**resources: Any) -> Job:
    """The main container, asking for this."""
    return make_container(resources=resources)


GPU = "nvidia.com/gpu"
WITH_GPUS, WITHOUT = {"template": make_template(with_gpus(2))}, {"template": make_template()}
ELASTIC_ENV = sorted(elastic.RESERVED_ENV)
WRONG = {
    "restarts": job(pod={"restartPolicy": "OnFailure"}),
    "nothing to run": job(make_container(args=None)),
    "nothing to run beside another": job({"name": "log", "image": "i:1"}, make_container(args=[])),
    **{f"sets {name}": with_env("MINE", name) for name in (*contract.RESERVED_ENV, "PET_RDZV_ANYTHING")},
    "sets two": with_env("WORLD_SIZE", "MASTER_ADDR"),
    **{f"sets {name} in Elastic mode": with_env(name, mode="Elastic") for name in ELASTIC_ENV},
    "no such resource": job(requesting(limits={"gpu": 1})),
    "no such resource with dots": job(requesting(requests={"x.y": "1", "cpu": "1"})),
    "a resource that a sidecar asks for": job(None, {"name": "log", "image": "i:1", "resources": {"limits": {"g": 1}}}),
    "requests GPUs": job(requesting(requests={GPU: 1})),
    "requests GPUs, in quotes": job(requesting(requests={GPU: "1"}, limits={"cpu": 1})),
    "a master without GPUs": job(with_gpus(2), master=WITHOUT),
    "workers with GPUs": job(worker=WITH_GPUS),
    "both roles": job(master=WITHOUT, worker=WITH_GPUS),
    "a wrong template of the master": job(master={"template": make_template(restartPolicy="Always")}),
    "a wrong template of the workers": job(worker={"template": make_template(make_container(args=None))}),
    "our volume": job(mode="Elastic", pod={"volumes": [{"name": elastic.WISH_VOLUME, "emptyDir": {}}]}),
    "our container": job(mode="Elastic", pod={"initContainers": [make_container(name=elastic.INJECT_CONTAINER)]}),
    "our folder": job(make_container(volumeMounts=[{"name": "v", "mountPath": "/elastic-pytorch"}]), mode="Elastic"),
}
RIGHT = {
    "the least": job(),
    "never restarts": job(pod={"restartPolicy": "Never"}),
    "GPUs": job(requesting(limits={GPU: 2}, requests={GPU: "2", "cpu": "500m", "hugepages-2Mi": "4Mi"})),
    "a command": job(make_container(args=None, command=["bash", "run.sh"])),
    "variables": with_env("NCCL_DEBUG", "PET_MAX_RESTARTS", "ELASTIC_WARM"),
    "variables of the other mode": with_env(contract.ENV_TOKEN),
    "a sidecar that sets ours": job(None, make_container(name="log", env=[{"name": "WORLD_SIZE", "value": "1"}])),
    "the main container is the second": job({"name": "log", "image": "i:1"}, make_container()),
    "a wrong template that nobody uses": job(
        make_container(args=None), master={"template": make_template()}, worker={"template": make_template()}
    ),
    "GPUs of the master alone": job(with_gpus("1"), worker=WITHOUT),
    "our folder in the other mode": job(make_container(volumeMounts=[{"name": "v", "mountPath": "/elastic-pytorch"}])),
    "Elastic": job(mode="Elastic", pod={"volumes": [{"name": "mine", "emptyDir": {}}]}),
}
UNREADABLE = {
    "env is no list": job(make_container(env={"A": "b"})),
    "a GPU that is no number": job(with_gpus("many"), master=WITHOUT),
    "null containers": make_job(template={"spec": {"containers": None}}),
}


def mistakes(body: Job) -> list[str]:
    """What the operator says of it."""
    try:
        parse_spec(body)
    except InvalidSpecError as error:
        return [str(one) for one in error.errors]
    return []


@pytest.fixture(scope="module")
def jobs(estate: Estate, install: Install) -> Iterator[Jobs]:
    """Where the chart's policies are in force."""
    install()
    jobs = Jobs(estate.api, "default")
    wrong = WRONG["restarts"]
    eventually("the policy", lambda: jobs.create(wrong | {"metadata": {"name": "first"}}).status_code == 422)
    yield jobs
    estate.api.delete(jobs.path)


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_at_once_in_the_operators_words(jobs: Jobs, name: str) -> None:
    body = WRONG[name]
    told = mistakes(body)
    answer = jobs.create(body)
    assert answer.status_code == 422, answer.text
    assert told
    for mistake in told:
        assert mistake in answer.json()["message"]


def test_two_containers_of_one_name_are_refused(jobs: Jobs) -> None:
    answer = jobs.create(job(None, make_container()))
    assert answer.status_code == 422
    assert template_rules.NAME_TWICE in answer.json()["message"]


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_operator_takes_is_taken(jobs: Jobs, name: str) -> None:
    assert mistakes(RIGHT[name]) == []
    body = RIGHT[name] | {"metadata": {"name": f"right-{list(RIGHT).index(name)}"}}
    accepted(jobs.create(body))


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_the_rules_cannot_read_is_left_to_the_operator(jobs: Jobs, name: str) -> None:
    assert mistakes(UNREADABLE[name])
    accepted(jobs.create(UNREADABLE[name] | {"metadata": {"name": f"odd-{list(UNREADABLE).index(name)}"}}))


def test_a_wrong_job_that_is_there_already_may_be_labelled_scaled_and_suspended(estate: Estate, jobs: Jobs) -> None:
    kubectl(estate.cluster, "delete", "validatingadmissionpolicybinding", "elastic-pytorch-jobs")
    wrong = WRONG["restarts"] | {"metadata": {"name": "wrong"}}
    eventually("no policy", lambda: jobs.create(wrong).is_success)
    account.apply(estate.cluster, [o for o in account.rendered() if o["kind"] == "ValidatingAdmissionPolicyBinding"])
    again = deepcopy(wrong) | {"metadata": {"name": "probe"}}
    eventually("the policy again", lambda: jobs.create(again).status_code == 422)
    accepted(jobs.patch("wrong", {"metadata": {"labels": {"a": "b"}}}))
    accepted(jobs.patch("wrong", {"spec": {"replicas": 3}}, subresource="/scale"))
    accepted(jobs.patch("wrong", {"status": {"failures": 1}}, subresource="/status"))
    accepted(jobs.patch("wrong", {"spec": {"suspend": True}}))
    template = {"spec": {"template": make_template(restartPolicy="Always")}}
    assert jobs.patch("wrong", template).status_code == 422
    accepted(jobs.patch("wrong", {"spec": {"template": {"spec": {"restartPolicy": "Never"}}}}))
