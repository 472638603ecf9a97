"""What is generated is what its source says now."""

import pytest

from generate.artifacts import ALL
from generate.values_table import Value, values

ARTIFACTS = [
    pytest.param(artifact, id=str(artifact.path), marks=[pytest.mark.programs] if artifact.needs_helm else [])
    for artifact in ALL
]


@pytest.mark.parametrize("artifact", ARTIFACTS)
def test_a_generated_file_is_current(artifact):
    assert artifact.is_current(), f"{artifact.path} is not current: run `make generated`"


def test_no_file_is_generated_twice():
    assert len({artifact.path for artifact in ALL}) == len(ALL)


def test_a_table_of_values_has_defaults_as_written_and_descriptions_from_comments():
    source = """\
# About the file.

# The image.
image:
  # Empty: the
  # chart's.
  tag: ""
  pull: [{name: a}]

several:
  - name: one
    of: [x]
none: {}
"""
    assert values(source) == [
        Value("image", "", "The image."),
        Value("image.tag", '""', "Empty: the chart's."),
        Value("image.pull", "[{name: a}]", ""),
        Value("several", "[{name: one, of: [x]}]", ""),
        Value("none", "{}", ""),
    ]
