"""What `--code DIR` ships of a folder, what it leaves out, and what it refuses."""

from __future__ import annotations

import os

import pytest

from elastic_client.code.folder import IGNORE_FILE, MOST_BYTES, MOST_FILES, amount, read
from elastic_client.convert.converted import ConvertError
from tests.client.code.folders import make_folder


def paths(folder):
    return [file.path for file in read(folder).files]


def refused(folder):
    with pytest.raises(ConvertError) as error:
        read(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_files_of_all_folders_are_shipped_by_their_paths(tmp_path):
    make_folder(tmp_path, train_py="import pkg.helper\n", pkg__helper_py="", pkg__deep__data="1")
    code = read(tmp_path)
    assert [file.path for file in code.files] == ["pkg/deep/data", "pkg/helper.py", "train.py"]
    assert code.files[2].content == b"import pkg.helper\n"
    assert str(code).startswith(f"{tmp_path.name}, 3 files, 19 B, sha256:{code.digest}")


def test_the_folder_is_named_without_what_leads_to_it(tmp_path, monkeypatch):
    make_folder(tmp_path / "me" / "proj", train_py="")
    monkeypatch.chdir(tmp_path / "me" / "proj")
    assert read(".").name == "proj"
    assert read(tmp_path / "me" / "proj").name == "proj"


LEFT_OUT = [
    ".git/config",
    "pkg/__pycache__/helper.cpython-312.pyc",
    "helper.pyc",
    ".venv/bin/python",
    ".env",
    "node_modules/x.js",
    "checkpoints/last.pt",
    "pkg/.env",
    ".env.production",
    ".envrc",
    ".netrc",
    ".aws/credentials",
    ".kube/config",
    ".ssh/known_hosts",
    "id_ed25519",
    "pkg/server.key",
    "tls.pem",
]


@pytest.mark.parametrize("path", LEFT_OUT)
def test_what_is_no_code_stays_at_home(tmp_path, path):
    make_folder(tmp_path, train_py="", pkg__helper_py="")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("x")
    assert paths(tmp_path) == ["pkg/helper.py", "train.py"]


def test_a_package_called_checkpoints_is_code(tmp_path):
    assert paths(make_folder(tmp_path, pkg__checkpoints__save_py="")) == ["pkg/checkpoints/save.py"]


def test_lines_of_the_folders_own_file_come_after_those_that_always_count(tmp_path):
    make_folder(tmp_path, train_py="", data__a_bin="", data__keep_py="", notes_txt="", checkpoints__first_py="")
    (tmp_path / ".git").mkdir()
    (tmp_path / IGNORE_FILE).write_text("# data\ndata/*\n!data/keep.py\nnotes_txt\n!/checkpoints/\n")
    assert paths(tmp_path) == ["checkpoints/first.py", "data/keep.py", "train.py"]


def test_the_digest_is_that_of_paths_modes_and_contents(tmp_path):
    def digest(name, **files):
        return read(make_folder(tmp_path / name, **files)).digest

    first = digest("a", train_py="x", pkg__y_py="")
    assert digest("b", train_py="x", pkg__y_py="") == first
    others = {
        digest("c", train_py="z", pkg__y_py=""),
        digest("d", train_py="x", pkg__z_py=""),
        digest("e", train_py="x"),
        digest("f", train_py="", pkg__y_py="x"),
    }
    (tmp_path / "a" / "train.py").chmod(0o755)
    others.add(read(tmp_path / "a").digest)
    assert len(others | {first}) == 6


def test_a_link_to_a_file_within_the_folder_is_shipped_as_the_file(tmp_path):
    make_folder(tmp_path, pkg__helper_py="x = 1\n")
    (tmp_path / "helper.py").symlink_to("pkg/helper.py")
    first = read(tmp_path).files[0]
    assert (first.path, first.content) == ("helper.py", b"x = 1\n")


def test_links_that_cannot_be_shipped_are_refused_with_the_line_that_leaves_them_out(tmp_path):
    folder = make_folder(tmp_path / "proj", train_py="", pkg__a_py="")
    (tmp_path / "secret").write_text("key")
    for target, told in (
        (tmp_path / "secret", "the link leads out of the folder"),
        ("../secret", "the link leads out of the folder"),
        ("nowhere", "the link leads nowhere"),
        ("link", "the link leads nowhere"),
        ("pkg", "is a link to a folder, and a ConfigMap has no links"),
    ):
        (folder / "link").symlink_to(target)
        remedy = f"write link into {folder / IGNORE_FILE} to leave it out"
        assert refused(folder) == f"--code {folder}: 'link': {told}: {remedy}"
        (folder / "link").unlink()
    (folder / "link").symlink_to(tmp_path)
    (folder / IGNORE_FILE).write_text("link\n")
    assert paths(folder) == ["pkg/a.py", "train.py"]


def test_a_pipe_is_refused_and_never_opened(tmp_path):
    os.mkfifo(make_folder(tmp_path, train_py="") / "pipe")
    assert "'pipe': is no file" in refused(tmp_path)


def test_a_name_that_kubernetes_refuses_is_refused_here(tmp_path):
    (make_folder(tmp_path, train_py="") / "..x").write_text("")
    assert "'..x': Kubernetes takes no path that begins with two dots" in refused(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="names are bytes")
def test_a_name_that_is_no_text_is_refused(tmp_path):
    (make_folder(tmp_path, train_py="") / os.fsdecode(b"\xff")).touch()
    assert "its name is no UTF-8" in refused(tmp_path)


def test_too_much_is_refused_with_the_largest_files_and_a_line_to_write(tmp_path):
    make_folder(tmp_path, train_py="x", data__a="x" * 900_000, data__b="x" * 600_000)
    assert refused(tmp_path) == (
        f"--code {tmp_path}: has 1,500,001 bytes, and a ConfigMap takes 1,000,000; the largest: data/a (900 kB),"
        f" data/b (600 kB), train.py (1 B): write /data/ into {tmp_path / IGNORE_FILE},"
        " and put data on a volume or into the image"
    )
    (tmp_path / IGNORE_FILE).write_text("/data/\n")
    assert paths(tmp_path) == ["train.py"]


def test_as_much_as_fits_is_shipped(tmp_path):
    assert read(make_folder(tmp_path, train_py="x" * MOST_BYTES)).size == MOST_BYTES


def test_too_many_files_are_refused_with_the_folder_that_has_most(tmp_path):
    make_folder(tmp_path, train_py="", **{f"many__{number}": "" for number in range(MOST_FILES)})
    told = refused(tmp_path)
    assert f"has {MOST_FILES + 1} files, and a job takes {MOST_FILES}; {MOST_FILES} are in /many/: write" in told


def test_no_folder_and_an_empty_one_are_refused(tmp_path):
    assert "is no folder: write the one with your script" in refused(tmp_path / "none")
    assert "has no files, but for those that are left out" in refused(tmp_path)


def test_an_ignore_file_that_is_no_text_is_refused(tmp_path):
    (make_folder(tmp_path, train_py="") / IGNORE_FILE).write_bytes(b"\xff\xfe")
    assert "write patterns as in .gitignore, in UTF-8" in refused(tmp_path)
    (tmp_path / IGNORE_FILE).write_text("!\n")
    assert "write patterns as in .gitignore" in refused(tmp_path)


def test_amounts_are_short():
    assert [amount(size) for size in (812, 1000, 34_400, 999_499, 999_500, 3_400_000)] == [
        "812 B",
        "1 kB",
        "34 kB",
        "999 kB",
        "1.0 MB",
        "3.4 MB",
    ]
