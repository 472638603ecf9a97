"""The launch lines of docs/words.md are those of the table that tests run."""

from tests.docs.pages import text
from tests.worker.launchers.lines import read, table


def test_the_page_has_the_lines_that_are_run():
    expected = table(read())
    assert expected in text("docs/words.md"), f"put this table there:\n{expected}"
