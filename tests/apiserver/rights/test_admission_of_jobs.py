"""At `kubectl apply` the API server says of a template what the operator would say later in a condition."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from elastic_api import elastic, template_rules
from elastic_api.invalid import InvalidSpecError
from elastic_api.parse import parse_spec
from tests.api.jobs import make_job, make_template
from tests.api.mistakes import MISTAKES, RIGHT, Mistake
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually
from tests.apiserver.rights import account
from tests.apiserver.rights.conftest import Estate, Install
from tests.devcluster.pods import kubectl

pytestmark = pytest.mark.apiserver

Job = dict[str, Any]

AT_ONCE = [
    text.split("{")[0]
    for text in (
        template_rules.RESTARTS,
        template_rules.NAME_TWICE,
        template_rules.NO_PROGRAM,
        template_rules.RESERVED,
        template_rules.UNKNOWN_RESOURCE,
        template_rules.NO_GPU_LIMIT,
        template_rules.NO_GPUS,
        elastic.OURS,
        elastic.SET_BY_US,
        elastic.OUR_FOLDER,
    )
]
"""How the remedies begin that the rules of the chart know. The others are the operator's alone."""
WRONG = make_job(template=make_template(restartPolicy="OnFailure"))


def mistakes(body: Job) -> list[str]:
    """What the operator says of it."""
    try:
        parse_spec(body)
    except InvalidSpecError as error:
        return [str(one) for one in error.errors]
    return []


def told_at_once(body: Job) -> list[str]:
    """What of it the API server must say."""
    return [told for told in mistakes(body) if any(f": {remedy}" in told for remedy in AT_ONCE)]


@pytest.fixture(scope="module")
def jobs(estate: Estate, install: Install) -> Iterator[Jobs]:
    """Where the chart's policies are in force."""
    install()
    jobs = Jobs(estate.api, "default")
    eventually("the policy", lambda: jobs.create(WRONG | {"metadata": {"name": "first"}}).status_code == 422)
    yield jobs
    estate.api.delete(jobs.path)


@pytest.mark.parametrize("mistake", [one for one in MISTAKES if told_at_once(one.job)], ids=str)
def test_mistake_is_rejected_at_once_with_the_operators_message(jobs: Jobs, mistake: Mistake) -> None:
    answer = jobs.create(mistake.job)
    assert answer.status_code == 422, answer.text
    for told in told_at_once(mistake.job):
        assert told in answer.json()["message"]


def test_each_remedy_that_the_rules_know_is_in_the_table() -> None:
    told = " ".join(text for one in MISTAKES for text in told_at_once(one.job))
    assert [remedy for remedy in AT_ONCE if f": {remedy}" not in told] == []


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_operator_takes_is_taken(jobs: Jobs, name: str) -> None:
    body = RIGHT[name] | {"metadata": {"name": f"right-{list(RIGHT).index(name)}"}}
    accepted(jobs.create(body))


OTHERS = [one for one in MISTAKES if not told_at_once(one.job)]


@pytest.mark.parametrize("number", range(len(OTHERS)), ids=map(str, OTHERS))
def test_what_the_rules_cannot_read_is_left_to_the_operator(jobs: Jobs, number: int) -> None:
    accepted(jobs.create(OTHERS[number].job | {"metadata": {"name": f"odd-{number}"}}))


def test_a_wrong_job_that_is_there_already_may_be_labelled_scaled_and_suspended(estate: Estate, jobs: Jobs) -> None:
    kubectl(estate.cluster, "delete", "validatingadmissionpolicybinding", "elastic-pytorch-jobs")
    wrong = WRONG | {"metadata": {"name": "wrong"}}
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
