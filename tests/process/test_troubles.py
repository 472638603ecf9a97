import json
from dataclasses import replace
from itertools import pairwise

from elastic_operator.cluster.errors import Fenced, NameTaken, PodRefused, api_error
from elastic_operator.loop.backoff import LONGEST_SECONDS, Troubles
from tests.plan.jobs import make_job


def refusal(status, message, reason=""):
    body = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": status}
    return api_error(status, json.dumps(body).encode())


def refused(status, message, reason=""):
    return PodRefused(refusal(status, message, reason), role="worker")


def job(generation, *, uid):
    return replace(make_job(), uid=uid, generation=generation)


FORBIDDEN = refused(403, "exceeded quota: pods=0", "Forbidden")


def test_the_wait_grows_with_each_try_up_to_its_limit():
    troubles = Troubles()
    waits = []
    for _ in range(14):
        troubles.add(job(1, uid="uid"), FORBIDDEN, 100.0)
        waits.append(troubles.wait("uid", 100.0))
    assert all(later > earlier for earlier, later in pairwise(waits[:7]))
    assert waits[-1] <= LONGEST_SECONDS * 1.2


def test_a_job_without_trouble_waits_for_nothing():
    troubles = Troubles()
    troubles.add(job(1, uid="other"), FORBIDDEN, 100.0)
    assert troubles.wait("uid", 100.0) == 0.0
    assert troubles.message("uid") == ""


def test_success_ends_all_trouble():
    troubles = Troubles()
    troubles.add(job(1, uid="uid"), FORBIDDEN, 100.0)
    assert "exceeded quota" in troubles.message("uid")
    assert "ResourceQuota raised" in troubles.blocked("uid")
    troubles.clear("uid")
    assert troubles.message("uid") == ""


def test_what_only_an_edit_can_mend_is_refused_until_the_next_generation():
    troubles = Troubles()
    troubles.add(job(3, uid="uid"), refused(422, "spec.containers[0].image: Required value", "Invalid"), 100.0)
    assert "image" in troubles.refused("uid", 3)
    assert troubles.refused("uid", 4) == ""


def test_a_quota_or_a_webhook_may_let_the_next_try_pass():
    troubles = Troubles()
    troubles.add(job(3, uid="uid"), FORBIDDEN, 100.0)
    troubles.add(job(3, uid="uid"), refused(400, 'admission webhook "x" denied the request', "BadRequest"), 100.0)
    assert troubles.refused("uid", 3) == ""
    assert "Ask who runs that webhook" in troubles.blocked("uid")


def test_a_taken_name_is_tried_again_soon():
    troubles = Troubles()
    for _ in range(12):
        troubles.add(job(1, uid="uid"), NameTaken("taken", name="x", deleting=True), 100.0)
    assert troubles.wait("uid", 100.0) < 3.0


def test_losing_the_lease_is_nothing_to_tell_users():
    troubles = Troubles()
    troubles.add(job(1, uid="uid"), Fenced("not leading"), 100.0)
    assert troubles.message("uid") == ""
