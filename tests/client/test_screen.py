"""What stands on the screen."""

from __future__ import annotations

import io
import json
import re

import yaml

from elastic_client import screen
from elastic_client.documents import Check, JobReport, job_report
from tests.client.objects import NOW, TAKEN, WANTS, ago, condition, running_status, stored_job

WHY = f"""\
toy in default: Running, 2 pods (1 to 3 allowed), 8 GPUs, 0 restarts

State: Running
  2 pods run with world size 8.

Limited by: InsufficientNodes
  {WANTS}

Changes of size, newest first
AGO   PODS     REASON           PAUSE   STEPS LOST   WHY
30s   3 -> 2   QuotaReclaimed   0.5 s   7            {TAKEN}
30s   0 -> 3   Started                               The job gets 3 of 3 pods.
"""


def why(report: JobReport) -> str:
    """As where there is no terminal."""
    text = io.StringIO()
    screen.print_why(screen.console(text), report, NOW)
    return text.getvalue()


def test_why_says_state_limit_and_who_got_what_at_which_cost():
    assert why(job_report(stored_job())) == WHY


def test_why_says_what_waits_what_is_avoided_and_how_far_the_training_is():
    status = running_status(
        retry={"reason": "It failed.", "notBefore": ago(-20), "attempt": 2},
        failedSize={"reason": "No room.", "notBefore": ago(-90), "attempt": 3, "size": 4, "cause": "Unschedulable"},
        heldUntil=ago(-90),
        avoidedNodes=[{"name": "n1", "until": ago(-300), "reason": "UnexpectedAdmissionError"}],
        training={"step": 120, "lastCheckpointStep": 100, "goodput": 0.9},
    )
    status["conditions"].append(condition("Flapping", "True", "ChangedTooOften", "Held at 2 pods."))
    text = why(job_report(stored_job(status=status)))
    for told in (
        "Flapping: ChangedTooOften\n  Held at 2 pods.",
        "Tried again in 20s (PodFailed, attempt 2)\n  It failed.",
        "4 pods are tried again in 1m30s (Unschedulable, attempt 3)\n  No room.",
        "Held\n  at what it has, for 1m30s",
        "Node n1 is avoided for 5m\n  UnexpectedAdmissionError",
        "Training\n  step 120, last checkpoint at step 100, goodput 0.9",
    ):
        assert told in text


def test_why_says_what_failed_last_and_what_it_printed():
    lines = ["loss is inf", "", "bad flag"]
    last = {"time": ago(300), "pod": "toy-worker-0", "rank": 1, "exitCode": 3, "logTail": lines}
    told = why(job_report(stored_job(status=running_status(lastFailure=last))))
    head = "Last failure: rank 1 of toy-worker-0, exit code 3, 5m ago; its last lines\n"
    assert f"{head}  loss is inf\n  \n  bad flag\n\nChanges of size" in told
    last = {"time": ago(300), "pod": "toy-master-0", "exitCode": -9}
    told = why(job_report(stored_job(status=running_status(lastFailure=last))))
    assert "Last failure: toy-master-0, signal 9, 5m ago; its last lines\n  Nothing of its log could be read.\n" in told


def test_why_says_where_no_operator_has_looked_and_where_the_last_edit_is_not_answered():
    edited = stored_job()
    edited["metadata"]["generation"] = 2
    assert "No operator has looked at this job yet" in why(job_report(stored_job(status={})))
    assert "has not answered the last edit" in why(job_report(edited))


def test_text_of_others_is_neither_markup_nor_a_command_to_the_terminal():
    status = running_status(conditions=[condition("Ready", "True", "Running", "[bold]x[/bold] \x1b[2J :smile:")])
    assert "[bold]x[/bold]  [2J :smile:" in why(job_report(stored_job(status=status)))


def test_no_text_of_others_reaches_a_terminal_as_a_command_whatever_the_form():
    evil = "a\x1b[2J\x9b2J\x85b\x7f"
    last = {"time": ago(1), "pod": evil, "logTail": [evil]}
    conditions = [condition("Ready", "True", evil, evil), condition(evil, "True", evil, evil)]
    status = running_status(conditions=conditions, lastFailure=last)
    report = job_report(stored_job(status=status))
    for text in (why(report), screen.as_json(report), screen.as_yaml(report)):
        assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text) == []
    assert json.loads(screen.as_json(report))["state"]["message"] == evil
    assert yaml.safe_load(screen.as_yaml(report))["state"]["message"] == evil


def test_what_a_script_reports_takes_the_place_of_nothing_that_is_measured():
    metrics = [{"name": "step", "value": "7"}, {"name": "loss", "value": "0.5"}]
    text = why(job_report(stored_job(status=running_status(training={"step": 5, "metrics": metrics}))))
    assert "Training\n  step 5, script's step 7, loss 0.5\n" in text


def test_a_check_says_its_verdict_first_and_the_remedy_last():
    checks = [Check(name="a", ok=ok, told="found", remedy="do it" if ok is False else "") for ok in (True, False, None)]
    assert [screen.check_line(one).plain for one in checks] == [
        "ok       a: found",
        "not ok   a: found; do it",
        "unknown  a: found",
    ]


def test_columns_are_as_wide_as_what_stands_in_them_and_lines_end_without_blanks():
    lines = screen.grid(("A", "STATUS", "C"), [("x", "Failed", None), ("日本", "Other", 7), ("two\nlines", "", "")])
    assert [line.plain for line in lines] == [
        "A           STATUS   C",
        "x           Failed",
        "日本        Other    7",
        "two lines",
    ]
    assert [span.style for line in lines for span in line.spans] == ["bold red"]
