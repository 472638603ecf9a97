"""Receives the progress that training processes report in the protocol of Kubeflow's TrainJob (KEP-2779, 157).

The launcher takes the place of Kubeflow's controller: it sets the variables of that proposal in each training process,
and answers the POST. So scripts that report to Kubeflow work here unchanged, such as every Trainer of transformers. The
process with rank 0, in the master's pod, reports.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = "/trainer-status"
ENV_URL = "KUBEFLOW_TRAINER_SERVER_URL"
ENV_TOKEN_FILE = "KUBEFLOW_TRAINER_SERVER_TOKEN"
MOST_BYTES = 64 << 10
MOST_METRICS = 16
LONGEST = 64
"""Characters of a metric's name, and of its value."""
MOST_SECONDS = 10**10


class BadReportError(ValueError):
    """A field of the report has a value of another type, or one that is too large; the text names it."""


@dataclass(frozen=True)
class TrainerReport:
    """`percentage` is 0 to 100, `remaining` is in seconds; None if not known. Values of metrics are texts."""

    percentage: int | None = None
    remaining: int | None = None
    metrics: tuple[tuple[str, str], ...] = ()

    def to_status(self) -> dict[str, Any]:
        """The report as a part of /status, with the field names of the proposal."""
        named = [{"name": name, "value": value} for name, value in self.metrics]
        about = {
            "progressPercentage": self.percentage,
            "estimatedRemainingSeconds": self.remaining,
            "metrics": named or None,
        }
        return {name: value for name, value in about.items() if value is not None}


class TrainerReports:
    """The last report of the pod's training processes. The token is a new one for each launcher, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file, self._token = folder / "trainer-token", secrets.token_urlsafe(32)
        self.last = TrainerReport()
        self._begins = False

    def environ(self, given: Mapping[str, str], port: int) -> dict[str, str]:
        """The variables for a training process; none if the pod has its own, or if the launcher has no port."""
        if not port or ENV_URL in given:
            return {}
        if not self._file.exists():
            self._file.touch(mode=0o600)
            self._file.write_text(self._token)
        return {ENV_URL: f"http://127.0.0.1:{port}{PATH}", ENV_TOKEN_FILE: str(self._file)}

    def is_allowed(self, authorization: str) -> bool:
        """Whether the header is that of a process that could read the token's file."""
        return hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())

    def take(self, body: bytes) -> None:
        """Keep a report. Raises BadReportError.

        A process that has just started reports 0 % before it knows where it resumes: the last figures stay until its
        next report.
        """
        report = parse(body)
        self._begins = report.percentage == 0 and bool(self.last.percentage) and not self._begins
        if not self._begins:
            self.last = report


def parse(body: bytes) -> TrainerReport:
    """The report in the body of a POST. Raises BadReportError."""
    try:
        report = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadReportError(f"the body is no JSON: {error}") from error
    status = report.get("trainerStatus") if isinstance(report, dict) else None
    if not isinstance(status, dict):
        raise BadReportError('write {"trainerStatus": {"progressPercentage": 42}}')
    return TrainerReport(
        percentage=_integer(status, "progressPercentage", 100),
        remaining=_integer(status, "estimatedRemainingSeconds", MOST_SECONDS),
        metrics=tuple(_metrics(status.get("metrics"))),
    )


def _integer(status: dict[str, Any], field: str, most: int) -> int | None:
    value = status.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise BadReportError(f"trainerStatus.{field}: {value!r:.40} is not a whole number from 0 to {most}")
    return value


def _metrics(value: Any) -> list[tuple[str, str]]:
    """The first MOST_METRICS metrics, shortened."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadReportError("trainerStatus.metrics: write a list of name and value")
    for metric in value:
        if not isinstance(metric, dict) or not all(isinstance(metric.get(key), str) for key in ("name", "value")):
            raise BadReportError(f"trainerStatus.metrics: {metric!r:.80} has no text as name and as value")
    unique = {metric["name"][:LONGEST]: metric["value"][:LONGEST] for metric in value}
    return list(unique.items())[:MOST_METRICS]
