"""Prints documents: tables and paragraphs, coloured only on a terminal, or JSON, YAML and names.

If the output is no terminal, lines are neither wrapped nor cut, so that `grep` and `awk` see whole lines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import IO

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from elastic_api.job import GROUP
from elastic_api.policy import FlavorAmounts
from elastic_api.status import Forecast, LastFailure, QueuePosition, Retry, RetryCause, rfc3339
from elastic_client.documents import (
    Check,
    CheckList,
    Document,
    EventList,
    EventRow,
    JobList,
    JobReport,
    JobRow,
    QuotaList,
    QuotaReport,
    QuotaRow,
    WhenReport,
)
from elastic_client.words import age, counted, printable, sizes

NOT_A_TERMINAL_COLUMNS = 100_000
STYLES = {
    "Running": "green",
    "Succeeded": "green",
    "ok": "green",
    "Failed": "bold red",
    "InvalidSpec": "bold red",
    "InternalError": "bold red",
    "not ok": "bold red",
    "Degraded": "yellow",
    "Restarting": "yellow",
    "Warning": "yellow",
    "Queued": "cyan",
}
JOB_COLUMNS = [
    "NAME",
    "STATUS",
    "PODS",
    "MIN",
    "MAX",
    "GPUS",
    "LIMITED BY",
    "RESTARTS",
    "PROGRESS",
    "ETA",
    "WORLD",
    "STEP",
    "LOSS",
    "GOODPUT",
    "QUEUE",
    "STARTS",
    "AGE",
]
QUOTA_COLUMNS = ("NAME", "GUARANTEED", "USED", "BORROWED", "LENT", "LIMIT", "PENDING", "READY", "AGE")
JOB_RESOURCE = f"elasticpytorchjob.{GROUP}"
QUOTA_RESOURCE = f"gpuquotapolicy.{GROUP}"
INDENT = "  "
BETWEEN = 3
"""Blanks between columns."""
EXACT_POSITIONS = 10
"""The operator rounds places in line after this one."""


class Format(StrEnum):
    """Forms of output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def console(file: IO[str] | None = None) -> Console:
    """The console to print to. Text of the cluster is shown unchanged: nothing in it is markup."""
    target = file or sys.stdout
    width = None if target.isatty() else NOT_A_TERMINAL_COLUMNS
    return Console(file=target, width=width, markup=False, highlight=False, emoji=False)


def as_json(document: Document) -> str:
    """The document by `schema.json`; unknown values are absent. Control characters are escaped, also beyond ASCII."""
    text = document.model_dump_json(by_alias=True, exclude_none=True, indent=2)
    return re.sub(r"[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def as_yaml(document: Document) -> str:
    """The document by `schema.json`, as YAML."""
    import yaml

    body = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    text: str = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=NOT_A_TERMINAL_COLUMNS)
    return text


def names_of(document: Document) -> list[str]:
    """The lines of `-o name`, as kubectl accepts them."""
    match document:
        case JobList():
            return [f"{JOB_RESOURCE}/{job.name}" for job in document.jobs]
        case JobReport():
            return [f"{JOB_RESOURCE}/{document.job.name}"]
        case WhenReport():
            return []  # the job that asked is deleted
        case QuotaList():
            return [f"{QUOTA_RESOURCE}/{quota.name}" for quota in document.quotas]
        case QuotaReport():
            return [f"{QUOTA_RESOURCE}/{document.quota.name}"]
        case EventList():
            return [event.object for event in document.events]
        case CheckList():
            return [check.name for check in document.checks]
    raise AssertionError(f"no names in {type(document).__name__}")


def printed(document: Document, output: Format) -> bool:
    """Print the document in a form for programs, if one is wanted; returns whether it did."""
    target = console()
    match output:
        case Format.JSON:
            target.print(as_json(document), end="", soft_wrap=True)
        case Format.YAML:
            target.print(as_yaml(document), end="", soft_wrap=True)
        case Format.NAME:
            for name in names_of(document):
                target.print(name, soft_wrap=True)
        case _:
            return False
    return True


def grid(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Text]:
    """Lines of a table as kubectl prints it; None is an empty cell. rich's own tables take a second for 1,000 rows."""
    table = [list(columns), *([_shown(value) for value in row] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    return [_grid_line(cells, widths) for cells in table]


def _grid_line(cells: Sequence[str], widths: Sequence[int]) -> Text:
    """Cells side by side, without blanks at the end, so that lines can be cut and compared."""
    blanks = [" " * (width - cell_len(cell) + BETWEEN) for cell, width in zip(cells, widths, strict=True)]
    line = Text("".join(cell + blank for cell, blank in zip(cells, blanks, strict=True)).rstrip())
    start = 0
    for cell, blank in zip(cells, blanks, strict=True):
        if style := STYLES.get(cell):
            line.stylize(style, start, start + len(cell))
        start += len(cell) + len(blank)
    return line


def print_grid(target: Console, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """The table; a terminal wraps lines that are too long for it."""
    lines = grid(columns, rows)
    if target.is_terminal:
        target.print(Text("\n").join(lines), soft_wrap=True)
    else:
        target.file.write("".join(f"{line.plain}\n" for line in lines))


def job_cells(job: JobRow, at: datetime, *, namespaced: bool) -> list[object]:
    """A job's row, under JOB_COLUMNS, with its namespace before them if `namespaced`."""
    shown = [job.name, job.status, job.pods, job.min_pods, job.max_pods, job.gpus, job.limited_by, job.restarts]
    shown += [job.progress_percentage, job.eta]
    further = [job.world_size, job.step, job.loss, job.goodput, job.queue_position]
    further.append(rfc3339(job.estimated_start_time) if job.estimated_start_time else None)
    return [*([job.namespace] if namespaced else []), *shown, *further, age(job.created, at)]


def job_columns(*, namespaced: bool) -> list[str]:
    """The headings of `job_cells`."""
    return [*(["NAMESPACE"] if namespaced else []), *JOB_COLUMNS]


def quota_cells(quota: QuotaRow, at: datetime) -> list[object]:
    """A policy's row, under QUOTA_COLUMNS."""
    shown = [quota.name, quota.guaranteed, quota.used, quota.borrowed, quota.lent, quota.limit, quota.pending]
    return [*shown, quota.ready, age(quota.created, at)]


def event_cells(event: EventRow, at: datetime) -> list[object]:
    """An event's row: its age, reason, object, and the message with its count."""
    often = f" (x{event.count})" if event.count > 1 else ""
    return [age(event.time, at), event.type, event.reason, event.object, event.message + often]


EVENT_COLUMNS = ("AGO", "TYPE", "REASON", "OBJECT", "MESSAGE")


def event_line(event: EventRow) -> Text:
    """An event that has just happened, with the time in this machine's zone."""
    clock = event.time.astimezone().strftime("%H:%M:%S")
    cells = [_shown(cell) for cell in [clock, *event_cells(event, event.time)[1:]]]
    return _grid_line(cells, [cell_len(cell) for cell in cells])


def print_why(target: Console, report: JobReport, at: datetime) -> None:
    """The answer to "why is it not running, why is it not bigger, who took my GPUs?" on one screen."""
    job = report.job
    size = f"{counted(job.pods, 'pod')} ({sizes(job.min_pods, job.max_pods)} allowed)"
    status = (printable(job.status), STYLES.get(job.status, ""))
    head = Text.assemble((job.name, "bold"), f" in {job.namespace}: ", status)
    target.print(head + Text(f", {size}, {counted(job.gpus, 'GPU')}, {counted(job.restarts, 'restart')}"))
    for title, text in _paragraphs(report, at):
        target.print()
        print_paragraph(target, title, text)
    if report.last_failure is not None:
        target.print()
        print_last_failure(target, report.last_failure, at)
    if report.history:
        target.print()
        target.print(Text("Changes of size, newest first", "bold"))
        print_grid(target, ("AGO", "PODS", "REASON", "PAUSE", "STEPS LOST", "WHY"), _history_cells(report, at))


def print_paragraph(target: Console, title: str, text: str) -> None:
    """A heading, and a text indented under it; a terminal wraps it."""
    target.print(Text(printable(title), "bold"), soft_wrap=True)
    if text and target.is_terminal:
        target.print(Padding(Text(printable(text)), (0, 0, 0, len(INDENT))))
    elif text:
        target.print(Text(INDENT + printable(text)), soft_wrap=True)


def print_last_failure(target: Console, failure: LastFailure, at: datetime) -> None:
    """Print the last failure, and under it its last output, line by line."""
    who = failure.pod if failure.rank is None else f"rank {failure.rank} of {failure.pod}"
    code = failure.exit_code
    how = "" if code is None else f", signal {-code}" if code < 0 else f", exit code {code}"
    lines = [INDENT + printable(line) for line in failure.log_tail] or [INDENT + "Nothing of its log could be read."]
    target.print(Text(printable(f"Last failure: {who}{how}, {age(failure.time, at)} ago; its last lines"), "bold"))
    target.print(Text("\n".join(lines)), soft_wrap=True)


def print_when(target: Console, report: WhenReport, at: datetime) -> None:
    """The answer to "when does it start, what does it get, and whose is that?"."""
    would = report.forecast
    asked = f"{sizes(report.min_pods, report.max_pods)} pods in {report.namespace}: "
    gets = f"fits now, with {counted(would.replicas, 'pod')} and {counted(would.gpus, 'GPU')}"
    verdict = Text(gets, "green") if would.fits else Text("does not fit now", "yellow")
    target.print(Text(asked) + verdict, soft_wrap=True)
    message = [*_costs(would), (f"Limited by: {would.limit}", would.message)]
    for title, text in [*message, *_line(report.queue, at)]:
        target.print()
        print_paragraph(target, title, text)


def _costs(would: Forecast) -> list[tuple[str, str]]:
    """The owners of the GPUs that it would use."""
    found = []
    if would.borrowed_gpus:
        owners = ", ".join(f"{owner.policy} (up to {owner.gpus})" for owner in would.borrows)
        idle = f"Of the idle guarantee of {owners}, which may reclaim them." if owners else "Nobody is guaranteed them."
        found.append((f"Borrows {counted(would.borrowed_gpus, 'GPU')}", idle))
    if would.reclaimed_gpus:
        gone = f"Running pods with {counted(would.reclaimed_gpus, 'GPU')} would be evicted for it first."
        found.append((f"Evicts {counted(would.reclaimed_gpus, 'GPU')}", gone))
    return found


def _line(queue: QueuePosition | None, at: datetime) -> list[tuple[str, str]]:
    """Its place in line, and its estimated start."""
    if queue is None:
        return []
    about = "about " if queue.position > EXACT_POSITIONS else ""
    title = f"Place in line: {about}{queue.position}, in its team"
    if queue.estimated_start_time is None:
        why = "too few running jobs say when they end, or it is too far off, or it is not worked out yet."
        return [(title, f"When it starts is not known: {why}")]
    start = queue.estimated_start_time
    sure = "" if queue.confidence is None else f" The end of {queue.confidence:.0%} of the GPUs in use is known."
    return [(title, f"Starts in about {age(at, start)} ({rfc3339(start)}), if running jobs end when they say.{sure}")]


def print_pods(target: Console, report: JobReport) -> None:
    """The job's pods as its status lists them."""
    rows = [[pod.name, pod.role, pod.phase, pod.rank, pod.gpus, pod.node] for pod in report.pods]
    print_grid(target, ("POD", "ROLE", "PHASE", "RANK", "GPUS", "NODE"), rows)
    if report.pods_not_listed:
        target.print(f"and {report.pods_not_listed} more")


def print_events(target: Console, events: Iterable[EventRow], at: datetime) -> None:
    """Events, oldest first."""
    print_grid(target, EVENT_COLUMNS, (event_cells(event, at) for event in events))


def check_line(check: Check) -> Text:
    """A line of `doctor`: the verdict, the finding, and the remedy."""
    verdict = "unknown" if check.ok is None else "ok" if check.ok else "not ok"
    message = f"{check.name}: {check.told}" + (f"; {check.remedy}" if check.remedy else "")
    return Text.assemble((f"{verdict:<9}", STYLES.get(verdict, "")), printable(message))


def print_quota(target: Console, report: QuotaReport, at: datetime) -> None:
    """Print a policy, the use of its kinds of GPU, and the operator's conditions."""
    print_grid(target, QUOTA_COLUMNS, [quota_cells(report.quota, at)])
    selected = " and those with the labels it selects" if report.selects else ""
    target.print(f"\nnamespaces  {', '.join(report.namespaces) or 'none by name'}{selected}", soft_wrap=True)
    if report.parent:
        target.print(f"parent      {report.parent}")
    if report.jobs:
        target.print(f"jobs        {report.jobs.running} running, {report.jobs.queued} queued")
    if report.flavors:
        target.print()
        columns = ("FLAVOR", "GUARANTEED", "USED", "BORROWED", "LENT", "LIMIT", "PENDING", "FAIR SHARE")
        print_grid(target, columns, [_flavor_cells(flavor) for flavor in report.flavors])
    target.print()
    for condition in report.conditions:
        print_paragraph(target, f"{condition.type}: {condition.status} ({condition.reason})", condition.message)


def _flavor_cells(flavor: FlavorAmounts) -> list[object]:
    amounts = [flavor.guaranteed, flavor.used, flavor.borrowed, flavor.lent, flavor.limit, flavor.pending]
    return [flavor.name, *amounts, flavor.fair_share]


def _try(retry: Retry, at: datetime) -> str:
    """A sentence on a retry: what is retried, when, and after which failure; size 1 is the job as a whole."""
    what = "New nodes are asked for" if retry.cause is RetryCause.NODES_NOT_PROVISIONED else "Tried"
    what = f"{retry.size} pods are tried" if (retry.size or 1) > 1 else what
    return f"{what} again in {age(at, retry.not_before)} ({retry.cause}, attempt {retry.attempt})"


def _paragraphs(report: JobReport, at: datetime) -> list[tuple[str, str]]:
    """Headings with the operator's messages."""
    found = []
    if report.state is None:
        found.append(("State: unknown", "No operator has looked at this job yet: see `kubectl elastic doctor`."))
    elif report.state.message:
        found.append((f"State: {report.state.reason}", report.state.message))
    if report.limit is not None and (report.state is None or report.limit.message != report.state.message):
        found.append((f"Limited by: {report.limit.reason}", report.limit.message))
    found += _line(report.queue, at)
    found += [(f"{condition.type}: {condition.reason}", condition.message) for condition in report.warnings]
    found += [(_try(each, at), each.reason) for each in (report.retry, report.failed_size) if each is not None]
    if report.held_until is not None:
        found.append(("Held", f"at what it has, for {age(at, report.held_until)}"))
    for node in report.avoided_nodes:
        found.append((f"Node {node.name} is avoided for {age(at, node.until)}", node.reason))
    if report.training is not None:
        found.append(("Training", _training(report)))
    if report.state is not None and not report.up_to_date:
        found.append(("Edited", "The operator has not answered the last edit of the spec yet; the above is older."))
    return [(title, text) for title, text in found if text]


def _training(report: JobReport) -> str:
    training = report.training
    assert training is not None
    values: dict[str, object] = {
        "% done:": training.progress_percentage,
        "time left:": training.eta,
        "step": training.step,
        "epoch": training.epoch,
        "last checkpoint at step": training.last_checkpoint_step,
        "goodput": training.goodput,
        "checkpoints cannot be followed:": training.checkpoint_error,
    }
    for metric in training.metrics:  # the script names its metrics
        values[f"script's {metric.name}" if metric.name in values else metric.name] = metric.value
    return ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _history_cells(report: JobReport, at: datetime) -> list[list[object]]:
    """Unknown costs are empty cells: they are measured in Elastic mode only."""
    return [
        [
            age(change.time, at),
            f"{change.from_} -> {change.to}",
            change.reason,
            None if change.pause_seconds is None else f"{change.pause_seconds:g} s",
            change.lost_steps,
            change.message,
        ]
        for change in report.history
    ]


def _shown(value: object) -> str:
    return "" if value is None else printable(str(value)).replace("\n", " ")


def note(text: str) -> None:
    """A remark beside the output, on stderr."""
    print(printable(text), file=sys.stderr)
