"""Small texts."""

from __future__ import annotations

import pytest

from elastic_api.times import span
from elastic_client.words import counted, near, printable, sizes

SPANS = [
    (0, "0s"),
    (59, "59s"),
    (60, "1m"),
    (61, "1m1s"),
    (3600, "1h"),
    (3661, "1h1m"),
    (86_400, "1d"),
    (90_061, "1d1h"),
]
NEAR = [
    ("tou", ["toy", "other"], "did you mean toy?"),
    ("xyzzy", ["b", "a"], "there are a, b"),
    ("xyzzy", list("abcde"), "there are a, b, c and 2 more"),
    ("toy", [], ""),
]


@pytest.mark.parametrize(("seconds", "text"), SPANS)
def test_a_span_has_its_two_largest_units(seconds, text):
    assert span(seconds) == text


@pytest.mark.parametrize(("name", "names", "hint"), NEAR)
def test_a_name_that_is_not_there_is_answered_with_names_that_are(name, names, hint):
    assert near(name, names) == hint


def test_a_text_of_the_cluster_cannot_steer_the_terminal():
    assert printable("a\x1b[31mred\x07\x9b") == "a [31mred  "
    assert printable("two\nlines\tand é") == "two\nlines\tand é"


def test_one_is_counted_without_an_s_and_a_fixed_size_is_one_number():
    assert [counted(1, "pod"), counted(0, "pod"), sizes(2, 2), sizes(2, 8)] == ["1 pod", "0 pods", "2", "2 to 8"]
