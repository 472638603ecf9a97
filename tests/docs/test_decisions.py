"""docs/decisions.md: each decision is a row of a table that renders, and what the code refers to is there."""

from __future__ import annotations

import re
import subprocess

from tests.docs.pages import REPOSITORY, text

PAGE = text("docs/decisions.md")
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| [^|]+ \|$")
HEAD = "| # | decision | reason |\n|---|---|---|\n"
REFERENCE = re.compile(r"(?<![\w)\]])\((\d{1,3}(?:, \d{1,3})*(?: and \d{1,3})?)\)")
"""A number in brackets after a space, as "(34)" and "(34, 112 and 138)"; never that of a call."""


def numbers() -> list[int]:
    """The number of each row that is one."""
    return [int(row[1]) for line in PAGE.splitlines() if (row := ROW.match(line))]


def test_each_decision_has_one_row_of_three_cells_in_a_table_that_renders():
    assert sorted(numbers()) == sorted(set(numbers()))
    assert len(numbers()) == len(re.findall(r"^\| \d+ ", PAGE, re.MULTILINE)), "a row has a bar or a cell too many"
    tables = [block for block in re.split(r"\n(?=\|)(?<!\|\n)", PAGE) if block.startswith("|")]
    assert all(table.startswith(HEAD) for table in tables), "a blank line inside a table ends it"


def test_each_number_that_a_comment_or_docstring_refers_to_is_a_decision():
    named = {
        int(number)
        for folder in ("operator", "worker")
        for path in (REPOSITORY / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if "=" not in line
        for group in REFERENCE.findall(line)
        for number in re.findall(r"\d+", group)
    }
    assert named - set(numbers()) == set()


def test_make_why_shows_a_decision_and_the_code_that_refers_to_it():
    shown = subprocess.check_output(["make", "why", "N=112"], cwd=REPOSITORY, text=True).splitlines()
    assert shown[0].startswith("| 112 | ")
    places = [line.split(":", 2) for line in shown[1:]]
    assert "operator/elastic_operator/plan/allocation/allocate.py" in {path for path, _, _ in places}
    assert all("112" in code for _, _, code in places)
