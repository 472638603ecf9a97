"""What a training process reports in the way of Kubeflow's TrainJobs, over real connections."""

import asyncio
import contextlib
import json
import stat
from pathlib import Path

import pytest

from elastic_worker.launcher.progress import (
    ENV_TOKEN_FILE,
    ENV_URL,
    LONGEST,
    MOST_BYTES,
    MOST_METRICS,
    PATH,
    BadReportError,
    TrainerReport,
    TrainerReports,
    parse,
)
from elastic_worker.launcher.server import StatusServer


def body(**status):
    return json.dumps({"trainerStatus": status}).encode()


@contextlib.asynccontextmanager
async def reporting(folder):
    """The reports, and a function that posts one and returns the answer's code and text."""
    reports = TrainerReports(folder)
    server = StatusServer(status=dict, metrics=str, reports=reports)
    await server.open(0, "127.0.0.1")
    token = Path(reports.environ({}, server.port)[ENV_TOKEN_FILE]).read_text()

    async def post(content, authorization=f"Bearer {token}", *, length=None):
        length = len(content) if length is None else length
        head = f"POST {PATH} HTTP/1.1\r\nauthorization: {authorization}\r\nContent-Length: {length}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(head.encode("latin-1"))
            await asyncio.sleep(0.01)  # urllib sends the body after the head
            writer.write(content)
            answer = await reader.read()
        finally:
            writer.close()
        head, _, text = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), text.decode()

    try:
        yield reports, post
    finally:
        await server.close()


async def test_a_report_is_shown_with_the_names_of_the_proposal(tmp_path):
    async with reporting(tmp_path) as (reports, post):
        metrics = [{"name": "loss", "value": "0.5"}]
        said = {"progressPercentage": 42, "estimatedRemainingSeconds": 90, "metrics": metrics}
        assert (await post(body(**said, lastUpdatedTime="2026-01-31T12:00:00+00:00")))[0] == 200
        assert reports.last.to_status() == said


async def test_a_report_without_the_token_is_refused(tmp_path):
    async with reporting(tmp_path) as (reports, post):
        for authorization in ("", "Bearer x", "Bearer \xe9"):
            assert (await post(body(progressPercentage=42), authorization))[0] == 401
        assert reports.last == TrainerReport()


async def test_a_report_that_is_too_long_or_wrong_is_refused_with_its_reason(tmp_path):
    async with reporting(tmp_path) as (reports, post):
        code, text = await post(body(progressPercentage=101))
        assert (code, text) == (400, "trainerStatus.progressPercentage: 101 is not a whole number from 0 to 100\n")
        assert (await post(b" " * (MOST_BYTES + 1)))[0] == 400
        for length in ("", "-1", "1.5", "9" * 5000):
            assert (await post(b"", length=length))[0] == 400
        assert reports.last == TrainerReport()


async def test_the_token_is_in_a_private_file_and_a_pod_that_has_its_own_variables_keeps_them(tmp_path):
    reports = TrainerReports(tmp_path)
    file = Path(reports.environ({}, 29401)[ENV_TOKEN_FILE])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert reports.environ({ENV_URL: "https://elsewhere"}, 29401) == {}
    assert reports.environ({}, 0) == {}


def test_a_process_that_starts_again_does_not_set_the_progress_to_nothing(tmp_path):
    reports = TrainerReports(tmp_path)
    for percentage, shown in ((0, 0), (40, 40), (0, 40), (41, 41), (5, 5), (0, 5), (0, 0), (0, 0), (3, 3)):
        reports.take(body(progressPercentage=percentage))
        assert reports.last.percentage == shown


def test_metrics_are_shortened_and_only_the_first_are_kept():
    many = [{"name": f"{number}" + "n" * 100, "value": "v" * 100} for number in range(MOST_METRICS + 1)]
    metrics = parse(body(metrics=many)).metrics
    assert len(metrics) == MOST_METRICS
    assert {len(text) for metric in metrics for text in metric} == {LONGEST}


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "trainerStatus"),
        (b'{"trainerStatus": 1}', "trainerStatus"),
        (body(progressPercentage="42"), "progressPercentage"),
        (body(progressPercentage=True), "progressPercentage"),
        (body(estimatedRemainingSeconds=-1), "estimatedRemainingSeconds"),
        (body(estimatedRemainingSeconds=1.5), "estimatedRemainingSeconds"),
        (body(metrics={"loss": "1"}), "metrics"),
        (body(metrics=[{"name": "loss", "value": 1}]), "metrics"),
        (body(metrics=["loss"]), "metrics"),
    ],
)
def test_a_report_that_cannot_be_read_is_refused_by_the_name_of_its_field(content, names):
    with pytest.raises(BadReportError, match=names):
        parse(content)
