"""Mends of the source that programs are built from."""

from __future__ import annotations

import pytest

from devcluster.binaries import Edit
from devcluster.errors import DevclusterError


def test_an_edit_mends_each_place_of_its_file(tmp_path):
    (tmp_path / "a.go").write_text("one bad two bad\n")
    Edit("a.go", before="bad", after="good").apply(tmp_path)
    assert (tmp_path / "a.go").read_text() == "one good two good\n"


@pytest.mark.parametrize("there", [True, False], ids=["without the text", "without the file"])
def test_an_edit_that_has_nothing_to_mend_is_an_error(tmp_path, there):
    if there:
        (tmp_path / "a.go").write_text("good\n")
    with pytest.raises(DevclusterError, match=r"^a\.go: lacks the text"):
        Edit("a.go", before="bad", after="good").apply(tmp_path)
