"""The manifests that are printed say the same to every reader of YAML, whichever version it follows."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_client.convert.manifest import to_yaml

FLOAT = r"[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.?(inf|nan|infinity)"
INT = r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-f_]+|[0-9][0-9_]*|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)"
RULES = {
    "core": (
        (r"null|Null|NULL|~|", "null"),
        (r"true|True|TRUE|false|False|FALSE", "bool"),
        (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "int"),
        (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "float"),
    ),
    "go": (
        (r"null|~|", "null"),
        (r"y|n|yes|no|on|off|true|false", "bool"),
        (INT, "int"),
        (FLOAT, "float"),
        (r"\d\d\d\d-\d\d?-\d\d?.*", "timestamp"),
        (r"<<|=", "merge"),
    ),
}


def reader(rules):
    """A loader that knows these plain scalars beside texts."""

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012

    for pattern, tag in rules:
        Loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{tag}",
            re.compile(rf"(?:{pattern})\Z", 0 if rules is RULES["core"] else re.IGNORECASE),
            None,
        )
    return Loader


READERS = {"1.1": yaml.SafeLoader, **{name: reader(rules) for name, rules in RULES.items()}}
ODD = [
    "1e-3",
    "1e3",
    "0o17",
    "017",
    "y",
    "On",
    "no",
    "~",
    "",
    "null",
    ".5",
    "-.inf",
    "nan",
    "1_000",
    "12:30:45",
    "0x1F",
]
ODD += [
    "2024-01-01",
    "<<",
    "=",
    "-1",
    "+1",
    "1.",
    "- a",
    "# a",
    "a: b",
    "a #b",
    "---",
    "...",
    "%x",
    "@x",
    "\x1b",
    "\x85",
]
ODD += [
    "\u2028a",
    "\ufeff",
    " a",
    "a ",
    "a\n",
    "\na",
    " a\n b",
    "a\n\n",
    "a\r\nb",
    "\t",
    "-",
    "?",
    "'",
    '"',
    "!x",
    "&x",
    "*x",
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.from_regex(r"[-+.0-9eExob_:yntf]{1,6}")


def nodes(text, loader):
    """The scalars of a stream, each with its kind."""
    return [
        (node.tag.rpartition(":")[2], node.value)
        for pair in yaml.compose(text, Loader=loader).value
        for one in pair
        for node in (one.value if isinstance(one, yaml.SequenceNode) else [one])
    ]


def check(text):
    for name, loader in READERS.items():
        assert nodes(to_yaml({"k": [text], text: "v"}), loader) == [
            ("str", one) for one in (*(("k", text, text, "v") if text != "k" else ("k", "v")),)
        ], name


@pytest.mark.parametrize("text", ODD)
def test_an_odd_text_is_a_text_for_each_reader(text):
    check(text)


@settings(max_examples=400, deadline=None)
@given(texts)
def test_any_text_is_a_text_for_each_reader(text):
    check(text)


PLAIN = [
    "train.py",
    "--lr",
    "/data:/x",
    "x -- y",
    "registry.example.com/train:1",
    "-u",
    "a b",
    "elastic-pytorch.dev/v1",
]


@pytest.mark.parametrize("text", PLAIN)
def test_words_that_nobody_takes_for_anything_else_have_no_quotes(text):
    assert to_yaml({"k": text}) == f"k: {text}\n"
