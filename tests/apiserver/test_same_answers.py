"""A real API server answers as the table says that the one in memory is held to, too."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.apiserver.faults.lab import MERGE, STRATEGIC, await_service_account
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import eventually
from tests.simulate.requests import TABLES, Asked

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("table", TABLES)
def test_a_real_server_answers_as_the_one_in_memory(table: str, api: httpx.Client, jobs: Jobs) -> None:
    def ask(method, path, query, body, *, strategic):
        headers = (STRATEGIC if strategic else MERGE) if method == "PATCH" else {}
        answer = api.request(method, path, params=query, json=body, headers=headers)
        lines = answer.text.splitlines() if "watch" in query else []
        return answer.status_code, [json.loads(line) for line in lines] if lines else _json(answer)

    await_service_account(api, jobs.namespace)
    asked = Asked(jobs.namespace, ask)
    differ = []
    for row in TABLES[table]:
        if row.soon:
            eventually(f"{row.path} to be {row.answer}", lambda row=row: asked.brief(row) == row.answer, seconds=60)
        elif (answer := asked.brief(row)) != row.answer:
            differ.append(f"{row.method} {row.path} {row.body}: {answer}, not {row.answer}")
    assert not differ, "\n".join(differ)


def _json(answer: httpx.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None
