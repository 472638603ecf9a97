"""Which python trains, which GPUs and ports there are; what is missing is said in one line."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from elastic_client.exits import ClientError, Code
from elastic_client.local.machine import cards, look, ports

BUILT_FOR_GPUS = 'raise ImportError("libcudart.so.12: cannot open shared object file")'


def make_python(folder, name="python3", *, version=None, torch="", says=""):
    """A `python3` whose torch has that version, and is that code; without a version it has none."""
    modules = folder / f"modules-{name}"
    (modules / "torch").mkdir(parents=True)
    if version is not None:
        cuda = "12.8" if torch else None
        (modules / "torch" / "__init__.py").write_text(torch)
        (modules / "torch" / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\n")
    program = folder / name
    isolated = f'PYTHONPATH="{modules}" exec {sys.executable} -S "$@"'
    program.write_text(f"#!/bin/sh\n{says or isolated}\n")
    program.chmod(0o755)
    return str(program)


def environ(path):
    return {"PATH": f"{path}:{os.environ['PATH']}"}


@pytest.mark.processes
def test_the_first_python_of_path_that_has_torch_trains(tmp_path):
    make_python(tmp_path, "python3", says="exit 3")
    python = make_python(tmp_path, "python", version="2.15.0+cpu")
    found = look("", environ(tmp_path))
    assert (found.python, found.torch, found.gpus) == (python, "2.15.0+cpu", ())


@pytest.mark.processes
def test_torch_itself_says_which_gpus_it_can_use(tmp_path):
    counts = "class cuda:\n    device_count = staticmethod(lambda: 2)\n"
    make_python(tmp_path, version="2.15.0", torch=counts)
    assert look("", environ(tmp_path)).gpus == ("0", "1")
    assert look("", {**environ(tmp_path), "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,"}).gpus == ("GPU-a", "GPU-b")


UNFIT = [
    ({}, "it has no torch: `pip install torch` there"),
    ({"version": "2.3.1"}, "it has torch 2.3.1, and 2.4 or later is needed"),
    ({"version": "2.15.0", "torch": BUILT_FOR_GPUS}, "its torch cannot be imported: ImportError: libcudart"),
    ({"says": "exit 3"}, "its torch cannot be imported: it ended with 3"),
    ({"says": "echo '{\"python\": [3, 8]}'"}, "it is Python 3.8, and 3.9 or later is needed"),
]


@pytest.mark.processes
@pytest.mark.parametrize(("about", "told"), UNFIT)
def test_a_python_that_cannot_train_is_named_with_the_reason(tmp_path, about, told):
    python = make_python(tmp_path, **about)
    with pytest.raises(ClientError) as refused:
        look(python, environ(tmp_path))
    assert refused.value.code == Code.USAGE
    assert f"--python: no python can train: {python}: {told}" in str(refused.value)
    assert "write another, such as --python ~/venv/bin/python" in str(refused.value)


def test_a_python_that_is_not_there_is_named():
    with pytest.raises(ClientError, match="python9: there is no such program on PATH; write another"):
        look("python9", {"PATH": "/nowhere"})


def test_another_system_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ClientError, match="--local: the launcher needs Linux"):
        look("", {})


CARDS = [("", 2, ("0", "1")), ("3,5", 2, ("3", "5")), ("3", 2, ("0", "1")), ("3,5", 0, ())]


@pytest.mark.parametrize(("chosen", "number", "names"), CARDS)
def test_gpus_are_those_that_the_user_has_chosen(chosen, number, names):
    assert cards(number, {"CUDA_VISIBLE_DEVICES": chosen} if chosen else {}) == names


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClientError, match=f"--port {port}: a process listens at {port}: write another"):
            ports(port)
        with pytest.raises(ClientError, match=f"--port {port - 1}: a process listens at ({port - 1}|{port}): write"):
            ports(port - 1)  # others on this machine may have that one


def test_without_a_port_two_free_ones_are_taken():
    first, second = ports(None)
    assert first != second
