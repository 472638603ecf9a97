"""A new leader brings the NetworkPolicies of all jobs in line with its settings, whatever one of them meets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elastic_operator.build.network_policy import JobNetwork
from elastic_operator.cluster import api_requests
from elastic_operator.cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NameTaken,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from elastic_operator.upkeep import networks
from tests.cluster_unit.build import stored_job

PASSES = [
    Unreachable("no answer"),
    TooManyRequests("later", status=429),
    Unauthorized("the token has expired", status=401),
    ServerError("not now", status=500),
    Conflict("changed", status=409),
]
STAYS = [NameTaken("one is there"), Forbidden("no", status=403), ValueError("odd")]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception, int], list[str]]:
    """The names that were written; those of job a are answered with that error, so many times."""

    def answered(error: Exception, times: int) -> list[str]:
        written = list[str]()

        async def ensure(_session: object, manifest: dict[str, dict[str, str]]) -> None:
            written.append(manifest["metadata"]["name"])
            if written[-1] == "a-master" and written.count("a-master") <= times:
                raise error

        monkeypatch.setattr(api_requests, "ensure_network_policy", ensure)
        return written

    return answered


async def renew() -> None:
    jobs = [stored_job(name, namespace="x", uid=f"uid-{name}") for name in ("a", "b", "c")]
    await networks.renew(None, JobNetwork("operators"), jobs)  # type: ignore[arg-type] # nothing is sent


@pytest.mark.parametrize("error", PASSES, ids=lambda error: type(error).__name__)
async def test_what_may_pass_is_tried_again_after_all_others(writes, error: ClusterError) -> None:
    written = writes(error, 2)
    await renew()
    assert written == ["a-master", "b-master", "c-master", "a-master", "a-master"]


@pytest.mark.parametrize("error", STAYS, ids=lambda error: type(error).__name__)
async def test_what_stays_is_logged_and_holds_up_no_other_job(writes, error: Exception, caplog) -> None:
    written = writes(error, 9)
    await renew()
    assert written == ["a-master", "b-master", "c-master"]
    assert "job=x/a" in caplog.text
    assert "the NetworkPolicy" in caplog.text
