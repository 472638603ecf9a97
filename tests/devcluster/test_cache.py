"""Cache keys change with what went in, and with nothing else; an entry is there whole or not at all."""

import pytest

from devcluster import binaries, cache, projectimage, uv
from devcluster.errors import DevclusterError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_moving_a_letter_from_one_part_to_the_next_changes_the_key():
    assert cache.key(["ab", "c"]) != cache.key(["a", "bc"])


def test_the_key_of_files_ignores_where_they_lie_and_their_order(tmp_path):
    one = write(tmp_path / "one", a="1", b="2")
    other = write(tmp_path / "other", a="1", b="2")
    assert cache.key_of_files([one / "a", one / "b"], relative_to=one) == cache.key_of_files(
        [other / "b", other / "a"], relative_to=other
    )


def test_the_key_of_files_follows_content_names_and_extras(tmp_path):
    original = write(tmp_path / "x", a="1")
    key = cache.key_of_files([original], relative_to=original)
    assert key != cache.key_of_files([write(tmp_path / "y", a="2")], relative_to=tmp_path / "y")
    assert key != cache.key_of_files([write(tmp_path / "z", b="1")], relative_to=tmp_path / "z")
    assert key != cache.key_of_files([original], relative_to=original, extra=["flag"])


def test_compiled_python_does_not_change_the_key(tmp_path):
    source = write(tmp_path / "x", a="1")
    key = cache.key_of_files([source], relative_to=source)
    write(source / "__pycache__", compiled="bytes")
    assert cache.key_of_files([source], relative_to=source) == key


def test_an_entry_is_built_once():
    built = []

    def build(folder):
        built.append(folder)
        (folder / "file").write_text("content")

    assert cache.entry("kind/name", build) == cache.entry("kind/name", build)
    assert len(built) == 1
    assert (cache.root() / "kind/name/file").read_text() == "content"


def test_a_build_that_breaks_leaves_no_entry_and_the_next_one_starts_empty():
    def breaks(folder):
        (folder / "half").write_text("")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError):
        cache.entry("name", breaks)
    assert not (cache.root() / "name").exists()
    entry = cache.entry("name", lambda folder: (folder / "whole").write_text(""))
    assert [path.name for path in entry.iterdir()] == ["whole"]


def test_each_go_module_has_an_entry_of_its_own_that_its_link_flags_are_part_of():
    modules = [*map(binaries.kubernetes, binaries.KUBERNETES), *binaries.MODULES]
    assert len({module.entry_name() for module in modules}) == len(modules)
    usual = binaries.kubernetes(binaries.DEFAULT_KUBERNETES)
    unflagged = binaries.GoModule(name=usual.name, packages=usual.packages)
    assert unflagged.entry_name() != usual.entry_name()


@pytest.mark.parametrize("release", binaries.KUBERNETES)
def test_the_kubernetes_version_that_is_linked_in_is_the_one_that_go_mod_requires(release):
    required = (binaries.kubernetes(release).folder() / "go.mod").read_text()
    assert f"k8s.io/kubernetes {binaries.KUBERNETES[release]}" in required


def test_a_release_of_kubernetes_that_cannot_be_built_is_refused_with_those_that_can():
    with pytest.raises(DevclusterError, match=r"kubernetes='1.29': write one of 1.30, 1.36, 1.37"):
        binaries.kubernetes("1.29")


def test_images_are_built_with_the_uv_that_is_installed_here():
    assert f"ARG UV_VERSION={uv.VERSION}\n" in (projectimage.REPOSITORY / "Dockerfile").read_text()
