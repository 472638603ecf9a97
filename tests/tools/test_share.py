"""`elastic-operator share`: amounts in, shares out, and every mistake in a line of its own."""

from __future__ import annotations

import io
import json
import sys

import pytest


def make_policy(name="a", requested=1, **more):
    return {"name": name, "requested": requested, **more}


def test_guarantees_come_first_and_the_rest_goes_by_weight(desk):
    policies = [make_policy("a", 6, guaranteed=2, weight=1), make_policy("b", 6, guaranteed=2, weight=3)]
    said = desk.says("share", desk.file("f", {"total": 8, "policies": policies}))
    assert json.loads(said) == {"shares": {"a": 3, "b": 5}, "remaining": 0}


def test_what_is_left_out_has_the_defaults_of_a_policy(desk):
    short = [make_policy("a", 5), make_policy("b", 5)]
    full = [p | {"guaranteed": 0, "limit": None, "weight": 1, "priority": 0, "created": 0} for p in short]
    said = [desk.says("share", desk.file("f", {"total": 7, "policies": policies})) for policies in (short, full)]
    assert said[0] == said[1]
    assert json.loads(said[0])["remaining"] == 0


def test_the_limit_counts_all_gpus_not_only_the_borrowed_ones(desk):
    said = desk.says("share", desk.file("f", {"total": 9, "policies": [make_policy("a", 9, guaranteed=2, limit=3)]}))
    assert json.loads(said) == {"shares": {"a": 3}, "remaining": 6}


def test_of_two_that_ask_for_one_gpu_the_older_gets_it_whichever_way_its_age_is_written(desk):
    for older, younger in (
        (1.5, 2),
        ("2026-01-31T12:00:00Z", "2026-01-31T14:00:00+01:00"),
        (0, "2026-01-31T12:00:00Z"),
    ):
        policies = [make_policy("a", created=younger), make_policy("b", created=older)]
        said = desk.says("share", desk.file("f", {"total": 1, "policies": policies}))
        assert json.loads(said)["shares"] == {"a": 0, "b": 1}


def test_a_higher_priority_takes_what_it_wants_before_any_weight_counts(desk):
    policies = [make_policy("a", 4, weight=100), make_policy("b", 4, priority=1)]
    said = desk.says("share", desk.file("f", {"total": 5, "policies": policies}))
    assert json.loads(said)["shares"] == {"a": 1, "b": 4}


def test_a_weight_may_be_a_fraction_and_is_taken_exactly(desk):
    policies = [make_policy("a", 10, weight=0.1), make_policy("b", 10, weight=0.3)]
    said = desk.says("share", desk.file("f", {"total": 8, "policies": policies}))
    assert json.loads(said)["shares"] == {"a": 2, "b": 6}


def test_the_standard_input_is_read_for_a_dash(desk, monkeypatch):
    text = json.dumps({"total": 4.0, "policies": [make_policy()]}).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert json.loads(desk.says("share", "-")) == {"shares": {"a": 1}, "remaining": 3}


def test_nobody_asks_so_all_is_left(desk):
    assert json.loads(desk.says("share", desk.file("f", {"total": 4, "policies": []})))["remaining"] == 4


MISTAKES = [
    (make_policy(requested=1.5), "f: policies[0].requested: 1.5: must be an integer"),
    (make_policy(requested="2"), "f: policies[0].requested: '2': must be an integer"),
    (make_policy(requested=True), "f: policies[0].requested: true: must be an integer"),
    (make_policy(guaranteed=-1), "f: policies[0].guaranteed: -1: must be at least 0"),
    (make_policy(limit=-1), "f: policies[0].limit: -1: must be at least 0"),
    (make_policy(limit=2**31), f"f: policies[0].limit: {2**31}: must be at most {2**31 - 1}"),
    (make_policy(weight=-1), "f: policies[0].weight: -1: must be a number, 0 or more"),
    (make_policy(weight="1"), "f: policies[0].weight: '1': must be a number, 0 or more"),
    (make_policy(weight=10**400), "must be a number, 0 or more"),
    (make_policy(priority=0.5), "f: policies[0].priority: 0.5: must be an integer"),
    (make_policy(created="today"), "f: policies[0].created: 'today': must be a number, or a time with its zone"),
    (make_policy(created="2026-01-31T12:00:00"), "must be a number, or a time with its zone such as 2026-01-31T"),
    (make_policy(created=10**400), "must be a number, or a time with its zone"),
    (make_policy(name=""), "f: policies[0].name: '': must not be empty"),
    (make_policy(name=3), "f: policies[0].name: 3: must be a string"),
    (make_policy(weigth=2), "f: policies[0].weigth: 2: must be absent: there is no such field"),
    ({"name": "a"}, "f: policies[0].requested: must be present"),
    (7, "f: policies[0]: 7: must be a mapping"),
]


@pytest.mark.parametrize(("policy", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_mistake_is_told_with_its_field_its_value_and_the_remedy(desk, policy, message):
    [line] = desk.refuses("share", desk.file("f", {"total": 4, "policies": [policy]}))
    assert message in line


def test_each_mistake_has_a_line(desk):
    lines = desk.refuses("share", desk.file("f", {"total": -1, "policies": [make_policy(limit=1.5, weight=-2)]}))
    assert [line.split(": ")[2] for line in lines] == ["total", "policies[0].limit", "policies[0].weight"]


def test_two_policies_of_one_name_are_refused(desk):
    [line] = desk.refuses("share", desk.file("f", {"total": 4, "policies": [make_policy(), make_policy()]}))
    assert "f: policies[1].name: 'a': must be another name: policies[0] has this one" in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"total": 4,\n', "f: is not JSON: line 2, column 1: "),
        ("", "f: is not JSON: line 1, column 1: "),
        ('{"total": NaN, "policies": []}', "f: is not JSON: NaN is no number of JSON"),
        ("[" * 100_000, "f: is nested too deeply"),
        ('{"total": ' + "9" * 5000 + ', "policies": []}', "f: is not JSON: "),
        ([], "f: must be a JSON object with total and policies, not []"),
        ({"policies": []}, "f: total: must be present"),
    ],
    ids=["cut off", "empty", "NaN", "nested", "long number", "a list", "no total"],
)
def test_what_is_no_such_document_is_refused_in_words(desk, content, message):
    [line] = desk.refuses("share", desk.file("f", content))
    assert message in line


def test_a_file_that_cannot_be_read_is_refused_in_words(desk):
    assert "f: cannot be read: No such file or directory; name a file" in desk.refuses("share", f"{desk.folder}/f")[0]
    (desk.folder / "g").write_bytes(b"\xff")
    assert "g: is not UTF-8 text" in desk.refuses("share", f"{desk.folder}/g")[0]
