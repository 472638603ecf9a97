"""How the first process of an Elastic job's main container finds its python, in the shells that images have."""

from pathlib import Path

import pytest

from elastic_api.job import Runtime
from elastic_operator.build.launch import RUN_INJECTED, RUN_INSTALLED, launched
from elastic_worker.contract import EXIT_DO_NOT_RETRY, OLDEST_PYTHON
from tests.build.containers import EVERY_SHELL, eventually, image_python, program, required, run, start

NEWER_PYTHON = RUN_INJECTED.replace(f"sys.version_info < {OLDEST_PYTHON}", "sys.version_info < (99, 1)")


@EVERY_SHELL
@pytest.mark.parametrize("name", ["python3", "python"])
def test_the_python_that_has_torch_runs_the_launcher(shell, name, tmp_path):
    image_python(tmp_path / "python3")
    found = image_python(tmp_path / name, "torch")
    code, out, err = run(shell, RUN_INJECTED, "", "--", "train.py", "a b", env={"PATH": str(tmp_path)})
    assert (code, out, err) == (0, f"{found}</elastic-pytorch><--><train.py><a b>", "")


@EVERY_SHELL
def test_the_named_python_is_the_only_one_that_is_tried(shell, tmp_path):
    image_python(tmp_path / "python3", "torch")
    other = image_python(tmp_path / "other python", "torch")
    assert run(shell, RUN_INJECTED, str(other), "--", "x", env={"PATH": str(tmp_path)})[1].startswith(str(other))
    code, out, err = run(shell, RUN_INJECTED, "python9", "--", "x", env={"PATH": str(tmp_path)})
    assert (code, out) == (EXIT_DO_NOT_RETRY, "")
    assert "python9: there is no such program" in err
    assert "python3" not in err


@EVERY_SHELL
def test_an_image_without_torch_says_what_was_tried_and_that_another_pod_fares_no_better(shell, tmp_path):
    image_python(tmp_path / "python3")
    code, out, err = run(shell, RUN_INJECTED, "", "--", "train.py", env={"PATH": str(tmp_path)})
    assert (code, out) == (EXIT_DO_NOT_RETRY, "")
    assert err.startswith(
        "elastic-pytorch: no python in the image can run the job; python3: it lacks torch; python: there"
    )
    assert "spec.runtime.python" in err
    assert str(tmp_path) in err
    assert err.count("\n") == 1


@EVERY_SHELL
def test_without_injection_the_image_must_have_the_package_too(shell, tmp_path):
    image_python(tmp_path / "python3", "torch")
    found = image_python(tmp_path / "python", "torch", "elastic_worker")
    assert run(shell, RUN_INSTALLED, "", "--", "t.py", env={"PATH": str(tmp_path)})[1] == (
        f"{found}<-m><elastic_worker><--><t.py>"
    )
    found.unlink()
    code, _, err = run(shell, RUN_INSTALLED, "", "--", "t.py", env={"PATH": str(tmp_path)})
    assert code == EXIT_DO_NOT_RETRY
    assert "python3: it lacks elastic_worker; " in err


@EVERY_SHELL
def test_the_launcher_becomes_process_1(shell, tmp_path):
    text = 'case "$1" in -c) exit 0;; esac; trap "exit 7" TERM; echo > $0.ready; while :; do sleep 0.05; done'
    folder = Path(required("sleep")).parent
    found = program(tmp_path / "python3", text)
    container = start(shell, RUN_INJECTED, str(found), "--", "t.py", env={"PATH": str(folder)})
    try:
        eventually(Path(f"{found}.ready").exists, "the launcher starts")
        assert str(found) in Path(f"/proc/{container.pid}/cmdline").read_text()
        container.signal()
        assert container.end()[0] == 7
    finally:
        container.kill()


@EVERY_SHELL
def test_a_signal_before_the_launcher_starts_means_that_it_never_starts(shell, tmp_path):
    text = (
        f"PATH={Path(required('sleep')).parent}\n" + 'case "$1" in -c) kill -TERM 1; sleep 0.1;; *) echo started;; esac'
    )
    program(tmp_path / "python3", text)
    assert run(shell, RUN_INJECTED, "", "--", "train.py", env={"PATH": str(tmp_path)})[:2] == (143, "")


@EVERY_SHELL
def test_a_torch_that_is_too_old_is_named_and_the_next_python_tried(shell, tmp_path):
    image_python(tmp_path / "python3", "torch", torch="2.3.1+cu121")
    code, out, err = run(shell, RUN_INJECTED, "", "--", "train.py", env={"PATH": str(tmp_path)})
    assert (code, out) == (EXIT_DO_NOT_RETRY, "")
    assert "python3: it has torch 2.3.1+cu121, and 2.4 or later is needed" in err
    other = image_python(tmp_path / "python", "torch")
    assert run(shell, RUN_INJECTED, "", "--", "x", env={"PATH": str(tmp_path)})[1].startswith(str(other))


@pytest.mark.processes
@pytest.mark.parametrize("torch", ["2.4.0a0+f70bd71a48.nv24.06", "2.15.1", "3.0", "1!4", "unknown", ""])
def test_a_torch_that_is_new_enough_or_not_known_is_taken(torch, tmp_path):
    image_python(tmp_path / "python3", "torch", torch=torch)
    assert run("dash", RUN_INJECTED, "", "--", "x", env={"PATH": str(tmp_path)})[0] == 0


@pytest.mark.processes
def test_a_python_that_is_too_old_is_named(tmp_path):
    image_python(tmp_path / "python3", "torch")
    code, _, err = run("dash", NEWER_PYTHON, "", "--", "x", env={"PATH": str(tmp_path)})
    assert code == EXIT_DO_NOT_RETRY
    assert "python3: it is Python 3." in err


@pytest.mark.processes
def test_a_python_that_cannot_run_is_named(tmp_path):
    program(tmp_path / "python3", "exit 1")
    code, _, err = run("dash", RUN_INJECTED, "", "--", "x", env={"PATH": str(tmp_path)})
    assert code == EXIT_DO_NOT_RETRY
    assert "python3: it cannot run; python: there is no such program" in err


@pytest.mark.parametrize("script", [RUN_INJECTED, RUN_INSTALLED])
def test_the_kubelet_finds_nothing_to_expand_in_the_scripts(script):
    assert "$(" not in script
    assert "$$" not in script


def test_a_script_and_a_command_are_told_apart():
    script, command = {"args": ["t.py"]}, {"command": ["bash", "launch.sh"], "args": ["--lr"]}
    assert launched(script, Runtime())["command"][4:] == ["", "--"]
    assert launched(command, Runtime(python="py"))["command"][4:] == ["py", "--command", "--", "bash", "launch.sh"]
    assert launched(command, Runtime())["args"] == ["--lr"]
    assert launched(script, Runtime())["command"][2] == RUN_INJECTED
    assert launched(script, Runtime(inject=False))["command"][2] == RUN_INSTALLED
