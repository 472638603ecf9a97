"""llms.txt says what the pages say: each page of the index, by its title and its first sentence."""

import re

import pytest

from generate.helm import ROOT
from generate.llms_text import first_sentence, text


@pytest.mark.parametrize(
    ("paragraph", "sentence"),
    [
        ("It is 0.5 long (v1.2.3). Then more.", "It is 0.5 long (v1.2.3)."),
        ("Is it? Yes.", "Is it?"),
        ("How it is: like this. More.", "How it is: like this."),
        ("As in this example:", "As in this example."),
        ("No end", "No end"),
    ],
)
def test_a_first_sentence_ends_at_a_full_stop_that_ends_one(paragraph, sentence):
    assert first_sentence(paragraph) == sentence


def test_each_page_has_one_line_that_leads_to_it():
    lines = [line for line in text().splitlines() if line.startswith("- ")]
    found = [re.fullmatch(r"- \[[^]]+\]\(([^)]+)\): \S.*[.?]", line) for line in lines]
    assert None not in found, lines
    paths = [match[1] for match in found if match]
    pages = [f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert sorted(path for path in paths if path.startswith("docs/")) == sorted(pages)
    assert all((ROOT / path).is_file() for path in paths)
