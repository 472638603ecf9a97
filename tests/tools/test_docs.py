"""What docs/quotas.md shows works as it stands there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from elastic_api.parse import parse_policy
from tests.tools import two_teams

REPOSITORY = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", (REPOSITORY / "docs" / "quotas.md").read_text(), re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch):
    monkeypatch.chdir(REPOSITORY)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_typed_as_it_stands_there(desk, command):
    program, *arguments = shlex.split(command)
    assert program == "elastic-operator"
    assert desk.says(*arguments)


def test_every_tool_on_files_is_shown():
    assert {command.split()[1] for command in COMMANDS} == {"share", "replay", "simulate"}


def test_the_example_s_shares_are_those_of_the_rules(desk):
    assert json.loads(desk.says("share", "examples/teams/share.json"))["shares"] == {"vision": 3, "language": 5}


def test_the_snapshot_is_current_else_run_make_golden():
    assert two_teams.FILE.read_text() == two_teams.text()


def test_the_snapshot_shows_a_team_that_gets_back_what_it_is_guaranteed(desk):
    said = json.loads(desk.says("replay", "docs/cluster.json", "-o", "json"))
    assert {job["name"]: (job["before"], job["after"]) for job in said["jobs"]} == {"resnet": (4, 2), "bert": (0, 2)}


def test_the_example_policies_are_valid():
    policies = list(yaml.safe_load_all((REPOSITORY / "examples" / "teams" / "policies.yaml").read_text()))
    assert [policy["metadata"]["name"] for policy in policies] == ["research", "vision", "language"]
    for policy in policies:
        parse_policy(policy)
