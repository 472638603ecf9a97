"""Where two ranks of NCCL are tried; this itself needs no GPU."""

from pathlib import Path

import pytest
import torch

from tests.worker.gpu import cards


def library_with(folder, content):
    path = folder / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\0" * 5000 + content)
    return cards.nccl_library(folder)


@pytest.mark.parametrize(("count", "found"), [(0, None), (1, (0, 0)), (2, (0, 1)), (8, (0, 1))])
def test_two_ranks_share_a_card_only_where_there_is_no_other(tmp_path, monkeypatch, count, found):
    monkeypatch.delenv(cards.SHARES, raising=False)
    assert cards.for_two_ranks(count, library_with(tmp_path, cards.SHARES.encode())) == found


def test_an_nccl_that_knows_nothing_of_it_and_a_user_who_does_not_want_it_are_heeded(tmp_path, monkeypatch):
    monkeypatch.delenv(cards.SHARES, raising=False)
    assert cards.for_two_ranks(1, library_with(tmp_path / "old", b"NCCL version 2.20.5")) is None
    assert cards.for_two_ranks(1, None) is None
    monkeypatch.setenv(cards.SHARES, "0")
    assert cards.for_two_ranks(1, library_with(tmp_path / "new", cards.SHARES.encode())) is None


def test_the_nccl_of_the_newest_torch_knows_it():
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    assert cards.knows_sharing(cards.nccl_library(Path(torch.__file__).parents[1])) == (version >= (2, 15))
