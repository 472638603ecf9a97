"""docs/security.md: what a tenant tries, each with a test that is there."""

from __future__ import annotations

import pytest

from tests.docs.reliability import LINK, REPOSITORY
from tests.docs.test_reliability import names_in

LINES = (REPOSITORY / "docs" / "security.md").read_text().splitlines()
BEGIN = LINES.index("| a tenant tries | what happens | test |") + 2
ROWS = LINES[BEGIN : LINES.index("", BEGIN)]


@pytest.mark.parametrize("row", ROWS)
def test_each_row_names_a_test_that_is_there(row: str) -> None:
    tries, happens, test = (cell.strip() for cell in row.strip("|").split("|"))
    assert tries
    assert happens
    found = LINK.match(test)
    assert found, f"not a link to a test: {test}"
    assert found[1] in names_in(found[2])
