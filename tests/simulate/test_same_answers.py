"""The in-memory API server gives the answers of the table; `tests/apiserver/test_same_answers.py` asks a real one."""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.kit.requests import Request
from tests.simulate import server as kinds
from tests.simulate.cluster import Cluster
from tests.simulate.requests import TABLES, Asked
from tests.simulate.virtual_clock import VirtualClock


@pytest.mark.parametrize("table", TABLES)
async def test_the_server_in_memory_answers_as_a_real_one(table: str) -> None:
    cluster = Cluster(VirtualClock(), Random(0))
    cluster.server.create(kinds.NAMESPACES, {"metadata": {"name": "here"}})
    api = cluster.api

    def ask(method, path, query, body, *, strategic):
        request = Request(method, path, query, body, strategic)
        if not request.watches:
            answer = api.answer(request)
            return answer.status, json.loads(answer.body) if answer.body else None
        lines: list[bytes] = []
        api.leave(api.watch(request, lambda line: line and lines.append(line)))
        return 200, [json.loads(line) for line in lines]

    asked = Asked("here", ask)
    differ = []
    for row in TABLES[table]:
        if row.soon:
            cluster.machines.step()
        if (answer := asked.brief(row)) != row.answer:
            differ.append(f"{row.method} {row.path} {row.body}: {answer}, not {row.answer}")
    assert not differ, "\n".join(differ)
