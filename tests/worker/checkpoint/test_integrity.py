"""Whether a file was written to its end, told from its content."""

import gzip
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_worker.checkpoint.integrity import fingerprint_of, is_whole
from tests.worker.checkpoint.writing import safetensors_bytes, zip_bytes

CONTENTS = {
    "model.pt": zip_bytes(),
    "model.safetensors": safetensors_bytes(),
    "state.pkl": pickle.dumps({"weights": [1.5] * 100}),
    "trainer_state.json": json.dumps({"step": 100, "history": list(range(50))}).encode(),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_written_to_its_end_is_whole(tmp_path, name):
    (tmp_path / name).write_bytes(CONTENTS[name])
    assert is_whole(tmp_path / name) is True


@given(name=st.sampled_from(sorted(CONTENTS)), part=st.floats(0.01, 0.999))
@settings(deadline=None, max_examples=60)
def test_no_beginning_of_a_file_is_whole(tmp_path_factory, name, part):
    content = CONTENTS[name]
    torn = content[: max(5, int(len(content) * part))]
    if torn.endswith(b"."):  # where a pickle happens to have a full stop, its beginning cannot be told from an end
        torn = torn[:-1]
    path = tmp_path_factory.mktemp("torn") / name
    path.write_bytes(torn)
    assert is_whole(path) is False


def test_bytes_lost_in_the_middle_of_a_zip_are_noticed(tmp_path):
    content = zip_bytes()
    (tmp_path / "model.pt").write_bytes(content[:1000] + content[2000:])
    assert is_whole(tmp_path / "model.pt") is False


def test_a_safetensors_file_with_bytes_too_many_is_not_whole(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes() + b"x")
    assert is_whole(tmp_path / "model.safetensors") is False


@pytest.mark.parametrize("content", [b"", b"x", gzip.compress(b"weights", mtime=0), b"\x89HDF\r\n\x1a\n" + b"0" * 100])
def test_other_formats_do_not_tell(tmp_path, content):
    (tmp_path / "weights").write_bytes(content)
    assert is_whole(tmp_path / "weights") is None


def test_torch_s_old_format_does_not_tell(tmp_path):
    number = 0x1950A86A20F9469CFC6C
    (tmp_path / "old.pt").write_bytes(pickle.dumps(number, protocol=2) + b"raw tensors follow")
    assert is_whole(tmp_path / "old.pt") is None


def test_a_print_changes_with_the_file_and_follows_symlinks(tmp_path):
    (tmp_path / "a").write_text("1")
    (tmp_path / "link").symlink_to("a")
    before = fingerprint_of(tmp_path / "link")
    assert before == fingerprint_of(tmp_path / "a")
    (tmp_path / "a").write_text("22")
    assert fingerprint_of(tmp_path / "link") != before
    assert fingerprint_of(tmp_path / "none") is None
