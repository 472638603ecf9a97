"""Values of flags and arguments, and the choices that commands make before they ask anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from elastic_api.job import KIND, JobSpec
from elastic_api.status import JobStatus
from elastic_client.cluster import Place, _network_errors, _quoted, _split
from elastic_client.commands.change import Bounds, bounds
from elastic_client.commands.doctor import _aliases, compare_fields, minor
from elastic_client.commands.events import concerns
from elastic_client.commands.logs import Source, choose, main_container_of, merged, pod_of_rank
from elastic_client.commands.top import Jobs, apply, picture, summary
from elastic_client.commands.wait import Seen, conclusion, duration, ended
from elastic_client.documents import JobRow, job_report
from elastic_client.exits import ClientError, Code
from tests.client.objects import ago, ended_status, make_event, running_status, stored_job, stored_pod


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86_400)])
def test_a_duration_is_seconds_or_has_a_unit(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1w", "1h30m"])
def test_another_duration_is_refused_by_an_example(text):
    with pytest.raises(ClientError, match="such as 10m") as refused:
        duration(text)
    assert refused.value.code == Code.USAGE


@pytest.mark.parametrize(("text", "small", "big"), [("4", None, 4), ("2:8", 2, 8), ("4:4", 4, 4), ("1:4096", 1, 4096)])
def test_a_size_is_the_most_or_both_bounds(text, small, big):
    assert bounds(text) == Bounds(small, big)


@pytest.mark.parametrize("text", ["0", "8:2", "2-8", "2:", ":8", "two", "2:8:9", "0:4"])
def test_another_size_is_refused_by_an_example(text):
    with pytest.raises(ClientError, match="write 2:8") as refused:
        bounds(text)
    assert refused.value.code == Code.USAGE


@pytest.mark.parametrize(
    ("rank", "pod"), [(0, "toy-master-0"), (3, "toy-master-0"), (4, "toy-worker-0"), (7, "toy-worker-0")]
)
def test_a_rank_is_in_the_pod_whose_first_rank_comes_before_it(rank, pod):
    assert pod_of_rank(JobStatus.model_validate(running_status()), rank) == pod


def test_a_rank_that_is_not_there_or_not_known_is_refused():
    status = running_status()
    with pytest.raises(ClientError, match="the ranks are 0 to 7 now") as too_high:
        pod_of_rank(JobStatus.model_validate(status), 8)
    for pod in status["pods"]:
        del pod["rank"]
    with pytest.raises(ClientError, match=r"in Elastic mode only.*toy-master-0, toy-worker-0") as unknown:
        pod_of_rank(JobStatus.model_validate(status), 0)
    assert (too_high.value.code, unknown.value.code) == (Code.NOT_FOUND, Code.USAGE)


def chosen(*pods: dict, only: str | None = None) -> list[Source]:
    return choose(pods, JobStatus.model_validate(running_status()), job="toy", only=only)


def test_each_pod_that_has_a_log_is_read_under_its_rank_and_name():
    pods = [
        stored_pod("toy-worker-0", state="terminated"),
        stored_pod("toy-master-0"),
        stored_pod("toy-worker-1", state="waiting"),
    ]
    assert [(one.pod, one.prefix) for one in chosen(*pods)] == [
        ("toy-master-0", "0 master-0"),
        ("toy-worker-0", "4 worker-0"),
    ]


def test_one_pod_alone_needs_no_prefix():
    assert chosen(stored_pod("toy-master-0")) == [Source("toy-master-0", "pytorch")]
    assert chosen(stored_pod("toy-master-0"), stored_pod("toy-worker-0"), only="toy-worker-0") == [
        Source("toy-worker-0", "pytorch")
    ]


@pytest.mark.parametrize(
    ("pods", "only", "code", "told"),
    [
        ([], None, Code.NOT_FOUND, "has no pods now: Running. 2 pods run with world size 8."),
        ([stored_pod("toy-master-0")], "toy-master-1", Code.NOT_FOUND, "did you mean toy-master-0?"),
        (
            [stored_pod("toy-master-0", state="waiting")],
            None,
            Code.NOT_FOUND,
            "no container of job toy has started yet",
        ),
        (
            [stored_pod(f"toy-worker-{n}") for n in range(65)],
            None,
            Code.USAGE,
            "65 pods: choose one by --rank or --pod",
        ),
    ],
)
def test_where_no_log_can_be_read_the_reason_is_told(pods, only, code, told):
    with pytest.raises(ClientError) as refused:
        chosen(*pods, only=only)
    assert refused.value.code == code
    assert told in str(refused.value)


def test_the_container_that_trains_is_read():
    assert main_container_of(stored_pod("p", containers=("proxy", "pytorch"))) == "pytorch"
    assert main_container_of(stored_pod("p", containers=("train", "proxy"))) == "train"


async def _stream(*lines: str) -> AsyncIterator[str]:
    for line in lines:
        yield line


async def test_logs_of_several_pods_are_merged_by_time_and_each_keeps_its_order():
    sources = [Source("a", "pytorch", "a"), Source("b", "pytorch", "b"), Source("c", "pytorch", "c")]
    streams = [_stream("T1 one", "T4 four four"), _stream("T2 two", "T2 again", "T3 three"), _stream()]
    found = [(source.pod, line) async for source, line in merged(sources, streams)]
    assert found == [("a", "one"), ("b", "two"), ("b", "again"), ("b", "three"), ("a", "four four")]


async def test_one_log_is_printed_as_it_is():
    assert [line async for _, line in merged([Source("a", "c")], [_stream("no time", "")])] == ["no time", ""]


async def test_a_line_ends_at_a_newline_and_at_nothing_else():
    answer = httpx.Response(200, content="10%\r20%\n\x85 \u2028 end\nlast".encode())
    assert [line async for line in _split(answer)] == ["10%\r20%", "\x85 \u2028 end", "last"]


def test_what_is_asked_for_by_a_path_is_never_a_query_or_another_path():
    assert _quoted("/apis/g/v1/namespaces/a?b/jobs/c#d%2F e") == "/apis/g/v1/namespaces/a%3Fb/jobs/c%23d%252F%20e"
    for path in ("/apis/g/v1/jobs/", "/apis/g//jobs", "/apis/g/v1/../jobs", "/apis/./jobs"):
        with pytest.raises(AssertionError, match="no segment"):
            _quoted(path)


def test_a_reader_that_has_gone_is_no_trouble_of_the_network():
    with pytest.raises(BrokenPipeError), _network_errors("https://it"):
        raise BrokenPipeError
    with pytest.raises(ClientError, match="https://it cannot be reached: no route"), _network_errors("https://it"):
        raise httpx.ConnectError("no route")


OTHERS = [
    ("Pod", "toy-worker-0", "", 5, True),
    ("Pod", "toy-worker-0", "", 9999, False),
    ("Pod", "toy2-worker-0", "", 5, False),
    ("Pod", "toy-worker-x", "", 5, False),
    (KIND, "toy", "uid-toy", 5, True),
    (KIND, "toy", "another", 5, False),
    ("Service", "toy", "", 5, False),
]


@pytest.mark.parametrize(("kind", "name", "uid", "seconds", "is_of_job"), OTHERS)
def test_events_are_those_of_this_job_and_its_pods(kind, name, uid, seconds, is_of_job):
    event = make_event(kind, name, "Happened", at=ago(seconds), uid=uid)
    assert concerns(event, stored_job()) == is_of_job


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (ended_status("Succeeded", "All done."), Code.DONE, "job toy succeeded: All done."),
        (ended_status("Failed", "Exit 3."), Code.FAILED, "job toy failed: Exit 3. See <logs toy>"),
        (running_status(), None, "job toy has not ended within 5 s: it is Running; see <why toy>"),
        ({}, None, "job toy has not ended within 5 s: no operator has looked at it; see <why toy>"),
    ],
)
def test_the_end_of_a_wait_says_how_the_job_ended(status, code, told):
    job = stored_job(status=status)
    assert ended(job) == code
    assert conclusion("toy", Seen(job_report(job), ended(job)), 5, see="<{}>".format) == told


def row(name: str, **fields: object) -> JobRow:
    return JobRow(
        **{
            "namespace": "team",
            "name": name,
            "status": "Running",
            "pods": 1,
            "min_pods": 1,
            "max_pods": 2,
            "created": ago(5),
        }
        | fields
    )


def test_top_keeps_its_jobs_by_what_the_server_tells():
    jobs: Jobs = {}
    apply(jobs, "LIST", [row("a"), row("b")])
    apply(jobs, "MODIFIED", [row("a", pods=2)])
    apply(jobs, "DELETED", [row("b")])
    apply(jobs, "ADDED", [row("c")])
    assert {key[1]: job.pods for key, job in jobs.items()} == {"a": 2, "c": 1}
    apply(jobs, "LIST", [row("d")])
    assert [name for _, name in jobs] == ["d"]


def test_top_counts_all_jobs_and_shows_those_that_fit_the_largest_first():
    jobs = [row(f"j{n}", gpus=n) for n in range(6)] + [
        row("done", status="Succeeded", pods=0),
        row("q", status="Queued", pods=0),
    ]
    assert summary(jobs) == "8 jobs: 6 with pods, 1 without, 1 ended; 15 GPUs"
    lines = picture(jobs, height=7, namespaced=False).plain.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["NAME", "j5", "j4", "j3", "and"]
    assert lines[-1] == "and 5 more"


def test_doctor_tells_an_older_cluster_from_a_newer_one():
    mine = {"spec": _aliases(JobSpec), "status": _aliases(JobStatus)}
    newer = {**mine, "status": mine["status"] | {"racks"}}
    older = {**mine, "spec": mine["spec"] - {"preemptible"}}
    assert compare_fields(mine).ok
    assert "status.racks" in compare_fields(newer).told
    assert compare_fields(newer).remedy == "upgrade this client"
    assert "spec.preemptible" in compare_fields(older).told
    assert [minor("v1.2.3"), minor("1.2.9-rc1")] == ["1.2", "1.2"]


def test_the_next_command_names_the_same_place():
    assert Place("team a", None, "/k").flags == " -n 'team a' --kubeconfig /k"
    assert Place().flags == ""
