"""Masters are asked how their groups are, by HTTP; a user's pod answers, and may answer anything."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, pairwise
from unittest.mock import patch

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.status import MAX_METRICS
from elastic_operator.memory import DirtySet
from elastic_operator.pods.launcher_wire import MAX_FLAGS, MAX_GIVEN_UP, MAX_METRIC, MAX_SENTENCE, read_report
from elastic_operator.pods.master_poller import (
    FAST_POLL_SECONDS,
    MASTER_ANSWER_SECONDS,
    MASTER_SILENT_SECONDS,
    NEWS_OF_A_JOB,
    NEWS_OF_A_JOB_SECONDS,
    NEWS_OF_A_NAMESPACE,
    NEWS_OF_A_NAMESPACE_SECONDS,
    POLL_SECONDS,
    MasterPoller,
    Target,
)
from elastic_worker import contract
from elastic_worker.contract import STATUS_LIMIT_BYTES
from elastic_worker.launcher.server import StatusServer
from tests.kit.virtual_time import START

NOW = START
SAID = {
    "contract": "1",
    "epoch": 2,
    "generation": 5,
    "wish": 7,
    "state": "Running",
    "reason": "",
    "members": ["toy-master-0", "toy-worker-0"],
    "worldSize": 4,
    "failures": 0,
    "training": {"step": 1234, "lastCheckpointStep": 1200},
    "changes": [
        {"generation": 5, "time": NOW, "reason": "Join", "from": 1, "to": 2, "pauseSeconds": 0.45, "lostSteps": 0}
    ],
}


def understood(said, *, epoch=2):
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return read_report(
        body, master_uid="m", master_epoch=epoch, is_member_name=lambda name: name.startswith("toy-"), now=NOW
    )


class Listener:
    """Follows one master on a port of this machine, and hears what is new."""

    def __init__(self):
        self.heard = asyncio.Event()
        self.stepped = 0.0
        self.dirty_jobs = DirtySet[str | tuple[str, str]]()
        self.poller = MasterPoller(
            self.dirty_jobs,
            now=lambda: time.time() + self.stepped,
            on_change=self.heard.set,
            stepped=lambda: self.stepped,
        )
        self.dirty_jobs.take()

    def follow(self, port, **fields):
        known = {
            "namespace": "team-a",
            "job_name": "toy",
            "master_uid": "m",
            "address": "127.0.0.1",
            "master_epoch": 2,
            "port": port,
            "fast": True,
        }
        self.target = Target(**{**known, **fields})
        self.poller.follow("job", self.target)

    async def news(self, *, at):
        """What is told next, which is to be so many seconds after the beginning."""
        async with asyncio.timeout(2 * POLL_SECONDS + MASTER_SILENT_SECONDS):
            await self.heard.wait()
        assert time.monotonic() == at
        self.heard.clear()
        assert self.dirty_jobs.take() == {"job"}
        return self.poller.report("job")


@pytest.fixture
async def listener():
    listening = Listener()
    yield listening
    await listening.poller.stop()


@asynccontextmanager
async def launcher(said):
    """The launcher's own server, which shows `said` as it is when asked."""
    server = StatusServer(status=lambda: said, metrics=lambda: "")
    await server.open(0)
    try:
        yield server.port
    finally:
        await server.close()


@asynccontextmanager
async def anybody(answer):
    """A server that answers requests by `answer`; gives its port, and the paths asked for with the moments."""
    asked = asyncio.Queue()

    async def handle(request):
        asked.put_nowait((request.path, time.monotonic()))
        return await answer(request)

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


async def test_what_a_launcher_shows_is_understood(listener):
    async with launcher(SAID) as port:
        listener.follow(port)
        report = await listener.news(at=0)
    assert (report.generation, report.state, report.world_size, report.step) == (5, "Running", 4, 1234)
    assert report.members == ("toy-master-0", "toy-worker-0")
    assert (report.changes[0].pause_seconds, report.changes[0].before, report.changes[0].after) == (0.45, 1, 2)
    assert report.checkpoint_error is None


async def test_a_new_group_is_heard_of_and_mere_steps_are_not(listener):
    said = {**SAID}
    async with launcher(said) as port:
        listener.follow(port)
        first = await listener.news(at=0)
        said["training"] = {"step": 1300}
        await asyncio.sleep(10.5)
        assert not listener.heard.is_set()
        assert listener.poller.report("job") is first
        said["generation"] = 6
        report = await listener.news(at=11)
    assert (report.generation, report.step) == (6, 1300)


async def test_since_when_a_master_is_silent_counts_only_while_it_is_asked_often(listener):
    async with launcher(SAID) as port, anybody(failing) as (wrong, _):
        listener.follow(port, fast=False)
        await listener.news(at=0)
        assert listener.poller.last_answer_at("job") is None
        await asyncio.sleep(7.5)
        listener.follow(wrong)
        await asyncio.sleep(2)
        assert listener.poller.last_answer_at("job") == NOW + 7.5
        listener.follow(port)
        await asyncio.sleep(1)
        assert listener.poller.last_answer_at("job") == NOW + 9.5


@pytest.mark.parametrize("step", [3600.0, -3600.0])
async def test_a_step_of_the_clock_makes_no_master_look_silent(listener, step):
    async with launcher(SAID) as port:
        listener.follow(port)
        await listener.news(at=0)
        await asyncio.sleep(2.5)
        listener.stepped += step
        assert 0 <= time.time() + step - listener.poller.last_answer_at("job") <= 1
        await asyncio.sleep(20)
        assert 0 <= time.time() + step - listener.poller.last_answer_at("job") <= 1
        assert listener.poller.report("job").silent_since is None


async def test_masters_of_one_team_that_do_not_answer_make_no_other_teams_master_look_silent(listener):
    async with anybody(silent) as (hanging, _), launcher(SAID) as port:
        for team in range(6):
            for job in range(200):
                target = Target(f"team-{team}", "toy", "m", "127.0.0.1", 2, fast=True, port=hanging)
                listener.poller.follow(f"{team}-{job}", target)
        listener.follow(port, namespace="honest")
        await listener.news(at=MASTER_ANSWER_SECONDS)  # all places are taken at first
        for _ in range(20):
            await asyncio.sleep(1.5)
            assert listener.poller.last_answer_at("job") >= time.time() - FAST_POLL_SECONDS - MASTER_ANSWER_SECONDS


async def test_a_job_that_changes_once_is_heard_at_once_and_one_that_always_does_by_and_by(listener):
    said = {**SAID}
    async with launcher(said) as port:
        listener.follow(port)
        await listener.news(at=0)
        for second in range(1, NEWS_OF_A_JOB):
            said["generation"] += 1
            await listener.news(at=second)
        heard = []
        for second in range(NEWS_OF_A_JOB, 60):
            said["generation"] += 1
            await asyncio.sleep(second + 0.5 - time.monotonic())
            heard += [second] if listener.heard.is_set() else []
            listener.heard.clear()
        assert len(heard) <= 60 / NEWS_OF_A_JOB_SECONDS
        assert max(b - a for a, b in pairwise(heard)) <= NEWS_OF_A_JOB_SECONDS
        said["generation"] = latest = said["generation"] + 1
        await asyncio.sleep(NEWS_OF_A_JOB_SECONDS + FAST_POLL_SECONDS)
        assert listener.poller.report("job").generation == latest


async def test_chatty_masters_of_a_team_share_one_rate_limit(listener):
    numbers, told = count(), Counter()
    with patch.object(MasterPoller, "_get", lambda *_: answer({**SAID, "generation": next(numbers)})):
        for team, jobs in (("many", 1000), ("few", 10)):
            for job in range(jobs):
                listener.poller.follow(f"{team}-{job}", Target(team, "toy", "m", "127.0.0.1", 2, fast=True))
        known = {}
        for _ in range(20):
            await asyncio.sleep(1)
            for team, jobs in (("many", 1000), ("few", 10)):
                for job in range(jobs):
                    report = listener.poller.report(f"{team}-{job}")
                    told[team] += report is not known.get((team, job))
                    known[team, job] = report
    most = NEWS_OF_A_NAMESPACE + 20 / NEWS_OF_A_NAMESPACE_SECONDS
    assert most / 2 < told["many"] <= most + 1
    assert told["few"] >= 10 * NEWS_OF_A_JOB


async def answer(said):
    return json.dumps(said).encode()


async def test_a_job_that_begins_to_change_is_asked_at_once(listener):
    said = {**SAID}
    async with launcher(said) as port:
        listener.follow(port, fast=False)
        await listener.news(at=0)
        said["generation"] = 6
        await asyncio.sleep(7)
        listener.poller.follow("job", replace(listener.target, fast=True))
        assert (await listener.news(at=7)).generation == 6


async def test_a_master_that_answers_no_more_is_silent_after_a_while_until_it_answers_again(listener):
    async with launcher(SAID) as port:
        listener.follow(port)
        assert (await listener.news(at=0)).silent_since is None
    silent = await listener.news(at=MASTER_SILENT_SECONDS)
    assert (silent.silent_since, silent.generation) == (NOW, 5)
    async with launcher(SAID) as port:
        listener.follow(port)
        assert (await listener.news(at=MASTER_SILENT_SECONDS)).silent_since is None


async def test_no_master_is_asked_for_a_deleted_job(listener):
    async with launcher(SAID) as port:
        listener.follow(port)
        await listener.news(at=0)
        listener.poller.forget_deleted(set())
        assert listener.poller.report("job") is None
        assert listener.dirty_jobs.take() == {"job"}
        listener.follow(port)
        listener.poller.follow("job", None)
        assert listener.poller.report("job") is None


async def test_another_master_of_the_job_begins_with_nothing_said(listener):
    async with launcher(SAID) as port:
        listener.follow(port)
        await listener.news(at=0)
        listener.follow(port, master_uid="n", master_epoch=3)
        assert listener.poller.report("job") is None
        assert listener.dirty_jobs.take() == {"job"}


async def redirect(_request):
    return web.Response(status=302, headers={"Location": "/elsewhere"})


async def too_much(_request):
    return web.Response(body=json.dumps({**SAID, "more": "x" * STATUS_LIMIT_BYTES}).encode())


async def endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 4096)


async def silent(_request):
    await asyncio.sleep(3600)


async def failing(_request):
    return web.Response(status=500, body=json.dumps(SAID).encode())


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (redirect, FAST_POLL_SECONDS),
        (too_much, FAST_POLL_SECONDS),
        (endless, FAST_POLL_SECONDS),
        (silent, MASTER_ANSWER_SECONDS + FAST_POLL_SECONDS),
        (failing, FAST_POLL_SECONDS),
    ],
)
async def test_an_answer_that_is_none_is_passed_over_and_asked_for_again(listener, answer, again):
    async with anybody(answer) as (port, asked):
        listener.follow(port)
        assert [await asked.get(), await asked.get()] == [("/status", 0), ("/status", again)]
        assert listener.poller.report("job") is None
        assert not listener.heard.is_set()


async def test_a_master_that_cannot_be_reached_has_no_report(listener):
    listener.follow(1)
    listener.poller.follow("other", Target("team-a", "toy", "m", "no address", 2))
    await asyncio.sleep(60)
    assert listener.poller.report("job") is None


async def test_a_report_is_pending_until_the_master_has_answered(listener):
    assert listener.poller.report_pending("job")
    async with launcher(SAID) as port:
        listener.follow(port)
        assert listener.poller.report_pending("job")
        await listener.news(at=0)
    assert not listener.poller.report_pending("job")
    listener.poller.forget_deleted(set())
    assert listener.poller.report_pending("job")


@pytest.mark.parametrize(("fast", "longest"), [(True, POLL_SECONDS), (False, 2.5 * POLL_SECONDS)])
async def test_a_report_is_pending_no_more_once_the_master_has_been_asked_for_long(listener, fast, longest):
    async with anybody(failing) as (port, _):
        listener.follow(port, fast=fast)
        await asyncio.sleep(POLL_SECONDS - 1)
        assert listener.poller.report_pending("job")
        async with asyncio.timeout(longest - POLL_SECONDS + 1.5):
            await listener.heard.wait()
        assert not listener.poller.report_pending("job")
        assert listener.dirty_jobs.take() == {"job"}
        listener.heard.clear()
        await asyncio.sleep(2 * POLL_SECONDS)
        assert not listener.heard.is_set()


async def test_no_report_is_pending_of_a_master_that_begins_under_this_leader(listener):
    listener.poller.follow("job", None)
    listener.follow(1)
    assert not listener.poller.report_pending("job")
    await asyncio.sleep(2 * POLL_SECONDS)
    assert not listener.heard.is_set()
    assert listener.dirty_jobs.take() == set()


def test_given_up_pods_are_pods_of_the_job_and_at_most_as_many_as_are_shown():
    told = [{"pod": f"{job}-worker-0", "why": "hangs\n"} for job in ("other", *["toy"] * 5)]
    assert understood({**SAID, "givenUp": told}).given_up == (("toy-worker-0", "hangs"),) * MAX_GIVEN_UP


@pytest.mark.parametrize("further", [-1, 0, 1])
def test_masters_of_the_contract_before_and_of_the_one_after_are_heard(further):
    assert understood({**SAID, "contract": str(int(contract.VERSION) + further)}).step == 1234


@pytest.mark.parametrize(
    "wrong",
    [
        {"contract": str(int(contract.VERSION) + 2)},
        {"contract": str(int(contract.VERSION) - 2)},
        {"contract": "one"},
        {"epoch": 1},
        {"generation": -1},
        {"generation": "5"},
        {"generation": 2**60},
        {"worldSize": 10**9},
        {"members": ["other-worker-0"]},
        {"members": ["toy-worker-0"] * 5000},
        {"members": "toy"},
        {"state": "Run\nning"},
        {"state": None},
        {"training": {"step": 1.5}},
        {"training": {"epoch": -1}},
        {"training": {"samplesSeen": "1"}},
        {"training": {"loss": "low"}},
        {"training": {"goodput": {"share": 1.01}}},
        {"training": {"goodput": {"seconds": {}}}},
        {"training": {"goodput": {"share": 0.5, "seconds": {"lost": -1}}}},
        {"changes": SAID["changes"] * 21},
        {"changes": [{**SAID["changes"][0], "pauseSeconds": -1}]},
        {"changes": [{**SAID["changes"][0], "reason": "a b"}]},
    ],
)
def test_what_does_not_fit_is_not_taken(wrong):
    assert understood(SAID) is not None
    assert understood({**SAID, **wrong}) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 60_000, b"\xff\xfe", b"NaN"])
def test_an_answer_that_is_no_status_is_ignored(body):
    assert understood(body) is None


def test_texts_are_one_short_line_and_twins_no_members():
    said = {**SAID, "reason": "a\x1b[31m\nb\u202e " + "c" * 1000, "members": ["toy-worker-0"] * 2}
    flags = [f"--rdzv_id=\n{number}" for number in range(MAX_FLAGS + 1)]
    report = understood({**said, "training": {"checkpointError": "\x00 "}, "unusedFlags": flags})
    assert report.reason.isprintable()
    assert report.reason.startswith("a [31m b c")
    assert len(report.reason) == MAX_SENTENCE
    assert report.members == ()
    assert report.checkpoint_error is None
    assert report.unused_flags == tuple(f"--rdzv_id= {number}" for number in range(MAX_FLAGS))


def test_what_a_script_with_the_library_tells_is_understood():
    goodput = {"share": 0.75, "seconds": {"productive": 3.0, "startup": 0.5, "regroup": 0.5, "of a newer one": 1}}
    said = {"step": 3, "epoch": 1, "samplesSeen": 1400, "loss": -0.5, "goodput": goodput}
    report = understood({**SAID, "training": said})
    assert (report.epoch, report.samples_seen, report.loss, report.goodput.share) == (1, 1400, -0.5, 0.75)
    assert {part: seconds for part, seconds in report.goodput.seconds.items() if seconds} == {
        "productive": 3.0,
        "startup": 0.5,
        "regroup": 0.5,
    }


def test_what_a_script_reports_as_to_kubeflow_is_understood_and_cut():
    metrics = [{"name": f"m{number}", "value": "1" * 100} for number in range(20)]
    said = {"progressPercentage": 42, "estimatedRemainingSeconds": 90, "metrics": metrics}
    report = understood({**SAID, "training": said})
    assert (report.progress_percentage, report.estimated_remaining_seconds) == (42, 90)
    assert report.metrics == tuple((f"m{number}", "1" * MAX_METRIC) for number in range(MAX_METRICS))


@pytest.mark.parametrize(
    "wrong", [{"progressPercentage": 101}, {"estimatedRemainingSeconds": -1}, {"metrics": [{"name": "loss"}]}]
)
def test_progress_out_of_range_is_not_taken(wrong):
    assert understood({**SAID, "training": wrong}) is None


def test_fields_of_a_newer_launcher_are_passed_over():
    assert understood({**SAID, "warm": True, "training": {"step": 3, "era": 1}}).step == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda of: (
        st.lists(of, max_size=3) | st.dictionaries(st.sampled_from([*SAID, "step", "from", "to"]), of, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(list(SAID)), json_values))
def test_whatever_is_said_is_taken_or_not_and_never_a_fault(odd):
    report = understood({**SAID, **odd})
    assert report is None or (0 <= report.generation <= 2**53 and len(report.members) <= 4096)
