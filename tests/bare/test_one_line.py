"""What a person can cause, and can do about it, is said in one line; what was half made is not kept."""

import errno
import importlib.util
import os
import signal
import socket
from types import SimpleNamespace

import pytest

from demo.kube import Kube
from devcluster import binaries, cache, command_line, golang, machine, names, packages, shell, uv
from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from tests.bare.stand_ins import StandIns

QUIET = Progress(quiet=True)
MODULE = binaries.KWOK.folder()


@pytest.fixture(autouse=True)
def stand_ins(tmp_path, monkeypatch):
    made = StandIns(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def error_of(what, *arguments, **named):
    """The one line that it ends in."""
    with pytest.raises(DevclusterError) as caught:
        what(*arguments, **named)
    line = str(caught.value)
    assert "\n" not in line
    return line


def ending(app, capsys):
    """The status and the last words of a command."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with pytest.raises(SystemExit) as caught:
            command_line.run(app, program="demo")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if isinstance(caught.value.code, int):
        return caught.value.code, capsys.readouterr().err.strip()
    return 1, caught.value.code


def raising(error):
    def app():
        raise error

    return app


def test_a_program_that_fails_is_told_by_its_last_error_and_the_file_with_all_that_it_said(stand_ins):
    stand_ins.add("helm", "echo first; echo 'Error: timed out waiting' >&2; echo hint >&2; exit 3")
    line = error_of(shell.run, "helm", "upgrade")
    assert line.startswith("`helm upgrade` failed (3): Error: timed out waiting")
    assert (cache.root() / "logs" / "helm.log").read_text() == "first\nError: timed out waiting\nhint\n"
    assert "helm.log" in line


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("write error: No space left on device", "the disk is full"),
        ("E: Could not get lock /var/lib/dpkg/lock", "wait until it has ended"),
        ("go: dial tcp: lookup proxy: no such host", "look at the network"),
        ("E: Failed to fetch a.deb  Hash Sum mismatch", "run it again"),
        ("archive/tar: unexpected EOF", "is damaged"),
        ("Error: timed out waiting for the condition", "too busy"),
        ("SSLError: CERTIFICATE_VERIFY_FAILED", "SSL_CERT_FILE"),
    ],
)
def test_what_a_program_says_of_disk_and_network_comes_with_what_to_do(stand_ins, said, remedy):
    stand_ins.add("tool", f"echo '{said}' >&2; exit 1")
    assert remedy in error_of(shell.run, "tool")


def test_a_program_that_is_not_there_is_named():
    assert "'kubectl'" in error_of(Kube(cache.root(), "kubectl", "helm").kubectl, "get", "pods")


def test_kubectls_complaint_is_the_demos(stand_ins):
    stand_ins.add("kubectl", "echo 'The connection to the server 127.0.0.1:1 was refused' >&2; exit 1")
    kube = Kube(cache.root(), str(stand_ins.folder / "kubectl"), "helm")
    assert "The connection to the server 127.0.0.1:1 was refused" in error_of(kube.kubectl, "get", "pods")


def test_who_is_not_root_is_told_to_be(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in error_of(machine.ensure, QUIET)


def test_packages_that_only_root_can_install_are_named(stand_ins, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    stand_ins.add("apt-get", "exit 0")
    assert "only root" in error_of(packages.install, QUIET, ["buildah"])
    assert stand_ins.calls() == []


def test_lists_of_packages_that_are_out_of_date_are_renewed(stand_ins, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    stand_ins.add(
        "apt-get",
        f'[ "$1" = update ] && touch() {{ : >"$1"; }} && touch {stand_ins.folder}/new\n'
        f"[ -e {stand_ins.folder}/new ] || exit 100",
    )
    packages.install(QUIET, ["buildah"])
    assert [call.split()[1] for call in stand_ins.calls()] == ["install", "update", "install"]


def test_a_python_without_ensurepip_gets_it_from_debian(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else found(name))
    assert "python3-venv" in error_of(uv.ensure, QUIET)
    assert not (cache.root() / "uv").exists()


def test_a_go_that_is_new_enough_is_taken(stand_ins):
    stand_ins.add("go", "echo go version go1.26.0 linux/amd64")
    assert golang.ensure(QUIET, module=MODULE) == str(stand_ins.folder / "go")


@pytest.mark.parametrize(
    ("version", "here"),
    [("go1.19.8", "is 1.19.8"), ("go1.25.11", "is 1.25.11"), ("devel +a1", "is unknown"), ("", "no `go`")],
)
def test_any_other_go_gives_way_to_the_pinned_one_and_that_it_cannot_be_had_is_one_line(stand_ins, version, here):
    if version:
        stand_ins.add("go", f"echo 'go version {version} linux/amd64'")
    stand_ins.add("uv", "echo 'error: error sending request' >&2; exit 2")
    line = error_of(golang.ensure, QUIET, module=MODULE)
    assert line.startswith("Go 1.26.0 or newer is needed, ")
    assert here in line
    assert "put a newer `go` on PATH" in line
    assert "--require-hashes" in stand_ins.calls()[-1]
    assert not list((cache.root() / "go").iterdir())


def test_a_disk_that_is_too_small_for_the_first_run_is_told_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _path: SimpleNamespace(free=3 * cache.GIGABYTE))
    line = error_of(cache.check_room, "bin", "images", "torch")
    assert f"needs {sum(cache.ROOM_GIGABYTES.values())} GB" in line
    assert "3.0 GB are free" in line
    for kind in ("bin", "images", "torch"):
        cache.entry(f"{kind}/made", lambda _folder: None)
    cache.check_room("bin", "images", "torch")


def test_loopback_ports_that_are_all_taken_are_named(monkeypatch):
    monkeypatch.setattr(machine, "PORTS_TRIED", 1)
    monkeypatch.setattr(names, "FIRST_PORT", machine.free_port("taken") - names.first_port("taken") + names.FIRST_PORT)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", names.first_port("taken")))
        taken.listen()
        assert "NAME=" in error_of(machine.free_port, "taken")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(1), OSError(errno.ENOSPC, "No space left on device")]
)
def test_what_breaks_off_a_build_leaves_nothing_of_it(error):
    def build(folder):
        (folder / "half").write_text("")
        raise error

    with pytest.raises(type(error)):
        cache.entry("kind/name", build)
    assert not list((cache.root() / "kind").iterdir())


def test_a_full_disk_is_told_as_such(capsys):
    status, line = ending(raising(OSError(errno.ENOSPC, "No space left on device", "/cache")), capsys)
    assert status == 1
    assert "free some space" in line


def test_what_nobody_foresaw_is_one_line_that_says_where_the_traceback_is(capsys):
    status, line = ending(raising(ValueError("two\nlines")), capsys)
    log = cache.root() / "logs" / "demo-traceback.log"
    assert (status, line) == (1, f"demo: ValueError: two lines; this was not foreseen: please report it with {log}")
    assert "Traceback" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_one_line_after_it_has_cleaned_up(number, capsys):
    cleaned = []

    def app():
        try:
            signal.raise_signal(number)
        finally:
            cleaned.append(number)

    status, line = ending(app, capsys)
    assert status == 128 + number
    assert line == "demo: stopped; `make down` takes away a cluster that is still up"
    assert cleaned == [number]
