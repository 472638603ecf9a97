import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from elastic_operator.build.torchrun_group import POLL_SECONDS, last_rank
from elastic_operator.build.wrapper import RUN_COMMAND, RUN_TORCHRUN, wrapped
from elastic_worker.contract import EXIT_DO_NOT_RETRY
from tests.build.containers import (
    EVERY_SHELL,
    PATIENCE_SECONDS,
    SAY,
    children_of,
    eventually,
    image_python,
    program,
    required,
    run,
    shell_command,
    start,
    state_of,
)
from tests.build.groups import says


@pytest.fixture
def begin():
    """Starts containers and kills those that a failing test leaves."""
    begun = []

    def begin(*args, **how):
        begun.append(start(*args, **how))
        return begun[-1]

    yield begin
    for container in begun:
        container.kill()


def on_term(folder: Path, name: str, then: str) -> Path:
    """A program that says it is ready, and on SIGTERM leaves a file and does `then`."""
    loop = "while :; do sleep 0.05; done"
    text = f"trap 'echo got >> {folder}/{name}; {then}' TERM\necho ready > {folder}/{name}.ready\n{loop}"
    return program(folder / f"{name}.sh", text)


def ready(folder: Path, name: str) -> None:
    eventually((folder / f"{name}.ready").exists, f"{name} starts")


def command_of(pid: int) -> int:
    """The pid of the command in the container with process 1 `pid`: the first of its two children.

    The command may be ready before process 1 has started the look-out for groups, its second child.
    """
    both = eventually(
        lambda: children if len(children := children_of(pid)) == 2 else [], "the command and the look-out run"
    )
    return both[0]


@EVERY_SHELL
@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
def test_the_commands_exit_code_is_the_containers(shell, code):
    assert run(shell, RUN_COMMAND, "/bin/sh", "-c", f"exit {code}")[0] == code


@EVERY_SHELL
def test_a_command_ended_by_a_signal_gives_its_number_plus_128(shell):
    assert run(shell, RUN_COMMAND, "/bin/sh", "-c", "kill -KILL $$")[0] == 137


@EVERY_SHELL
def test_a_command_that_is_not_in_the_image_is_named(shell):
    code, _, err = run(shell, RUN_COMMAND, "no-such-program")
    assert code == 127
    assert "no-such-program" in err


@EVERY_SHELL
def test_arguments_reach_the_command_as_they_are(shell):
    words = ["two words", "", "$HOME", "*", "'\"", "-c", "--", "a\nb"]
    assert run(shell, RUN_COMMAND, "/bin/sh", "-c", SAY, "sh", *words)[1] == "".join(f"<{word}>" for word in words)


@EVERY_SHELL
def test_nothing_is_added_to_the_output_of_the_command(shell):
    assert run(shell, RUN_COMMAND, "/bin/sh", "-c", "echo out; echo err >&2; exit 3") == (3, "out\n", "err\n")


@EVERY_SHELL
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_whatever_the_stop_signal_processes_that_the_command_started_get_sigterm(shell, number, tmp_path, begin):
    grandchild = on_term(tmp_path, "grandchild", "exit 0")
    # The shell in between takes no part: it would wait for the grandchild without passing the signal on.
    container = begin(shell, RUN_COMMAND, "/bin/sh", "-c", f"trap : TERM; {grandchild} & wait; wait; exit 5")
    ready(tmp_path, "grandchild")
    container.signal(number)
    assert container.end()[0] == 5
    assert (tmp_path / "grandchild").read_text() == "got\n"


@EVERY_SHELL
def test_a_command_without_handler_ends_by_the_signal(shell, begin):
    container = begin(shell, RUN_COMMAND, "/bin/sh", "-c", "echo > /dev/null; exec sleep 60")
    eventually(lambda: children_of(container.pid), "the command starts")
    container.signal()
    assert container.end()[0] == 143


@EVERY_SHELL
def test_a_signal_that_comes_as_the_command_starts_is_not_lost(shell):
    """A child that is still the shell swallowed it, in one try of four with busybox."""
    for _ in range(20):
        words = [*shell_command(shell), "-c", RUN_COMMAND, "elastic-pytorch", "sleep", "60"]
        with subprocess.Popen(words, start_new_session=True) as wrapper:
            while not (begun := children_of(wrapper.pid)):
                pass
            wrapper.send_signal(signal.SIGTERM)
            try:
                assert wrapper.wait(PATIENCE_SECONDS) == 143
            finally:
                if wrapper.poll() is None:
                    wrapper.kill()
                    os.kill(begun[0], signal.SIGKILL)


@EVERY_SHELL
def test_a_command_that_stops_slowly_is_waited_for_and_its_code_is_kept(shell, tmp_path, begin):
    container = begin(shell, RUN_COMMAND, on_term(tmp_path, "slow", "sleep 0.7; exit 42"))
    ready(tmp_path, "slow")
    for _ in range(3):
        container.signal()
        time.sleep(0.1)
    assert container.end()[0] == 42


@EVERY_SHELL
def test_a_command_that_ends_as_the_signal_arrives_gives_its_own_code(shell, tmp_path, begin):
    container = begin(shell, RUN_COMMAND, on_term(tmp_path, "child", "exit 9"))
    ready(tmp_path, "child")
    child = command_of(container.pid)
    # Stopped, process 1 sees both at once when it goes on.
    container.signal(signal.SIGSTOP)
    os.kill(child, signal.SIGTERM)
    eventually(lambda: state_of(child) == "Z", "the command ends")
    container.signal(signal.SIGTERM)
    container.signal(signal.SIGCONT)
    assert container.end()[0] == 9


@EVERY_SHELL
def test_a_signal_just_after_the_commands_end_does_not_cover_its_code(shell):
    told = "result=$?\n"
    assert told in RUN_COMMAND
    script = RUN_COMMAND.replace(told, told + '  [ -n "$once" ] || { once=1; kill -TERM 1; }\n')
    assert run(shell, script, "/bin/sh", "-c", "exit 9")[0] == 9


@EVERY_SHELL
def test_a_command_that_ignores_the_signal_goes_on_until_it_is_killed(shell, tmp_path, begin):
    text = f"trap '' TERM\necho ready > {tmp_path}/deaf.ready\nwhile :; do sleep 0.05; done"
    container = begin(shell, RUN_COMMAND, program(tmp_path / "deaf.sh", text))
    ready(tmp_path, "deaf")
    container.signal()
    time.sleep(0.5)
    assert container.running()
    deaf = command_of(container.pid)
    container.signal(signal.SIGKILL)
    eventually(lambda: not state_of(deaf), "the command is killed with process 1")


@EVERY_SHELL
def test_orphans_do_not_stay_as_zombies(shell, tmp_path, begin):
    orphans = "for n in 1 2 3 4 5; do (sleep 0.1 &) ; done"
    text = f"{orphans}\nsleep 0.5\necho ready > {tmp_path}/parent.ready\nexec sleep 60"
    container = begin(shell, RUN_COMMAND, program(tmp_path / "parent.sh", text))
    ready(tmp_path, "parent")
    eventually(lambda: len(children_of(container.pid)) == 2, "only the command is left, and the look-out for groups")
    assert "Z" not in [state_of(child) for child in children_of(container.pid)]


@EVERY_SHELL
def test_a_signal_before_the_command_starts_means_that_it_never_starts(shell, tmp_path):
    # In its namespace the container is process 1; the search for torchrun is where a signal finds it without a child.
    python = 'case "$*" in *find_spec*) kill -TERM 1; sleep 0.1;; *) echo started;; esac'
    program(tmp_path / "python3", f"PATH={Path(required('sleep')).parent}\n{python}")
    code, out, _ = run(shell, RUN_TORCHRUN, "train.py", env={"PATH": str(tmp_path)})
    assert (code, out) == (143, "")


@EVERY_SHELL
def test_without_setsid_in_the_image_a_signal_still_reaches_the_command(shell, tmp_path, begin):
    child = on_term(tmp_path, "child", "exit 6")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sleep").symlink_to(required("sleep"))
    container = begin(shell, RUN_COMMAND, child, env={"PATH": str(folder)})
    ready(tmp_path, "child")
    container.signal()
    assert container.end()[0] == 6


@EVERY_SHELL
def test_the_images_torchrun_is_used(shell, tmp_path):
    program(tmp_path / "torchrun", f"printf torchrun\n{SAY}")
    program(tmp_path / "python3", "echo wrong")
    assert run(shell, RUN_TORCHRUN, "train.py", "--lr", env={"PATH": str(tmp_path)}) == (
        0,
        "torchrun<train.py><--lr>",
        "",
    )


@EVERY_SHELL
@pytest.mark.parametrize("name", ["python3", "python"])
def test_without_torchrun_on_path_the_python_that_has_torch_runs_it(shell, name, tmp_path):
    image_python(tmp_path / "python3")
    found = tmp_path / name
    image_python(found, "torch")
    code, out, err = run(shell, RUN_TORCHRUN, "train.py", env={"PATH": str(tmp_path)})
    assert (code, out, err) == (0, f"{found}<-m><torch.distributed.run><train.py>", "")


@EVERY_SHELL
def test_an_image_without_torch_says_what_was_looked_for(shell, tmp_path):
    image_python(tmp_path / "python3")
    code, out, err = run(shell, RUN_TORCHRUN, "train.py", env={"PATH": str(tmp_path)})
    assert (code, out) == (EXIT_DO_NOT_RETRY, "")
    assert err.startswith("elastic-pytorch: torchrun: not found in the image")
    assert str(tmp_path) in err
    assert "python3: it lacks torch; python: it cannot run" in err
    assert "Use an image with PyTorch 2.4 or later, or give the container a command" in err
    assert err.count("\n") == 1


@EVERY_SHELL
@pytest.mark.parametrize("on_path", [True, False], ids=["torchrun", "python3"])
def test_a_torch_that_is_too_old_is_named(shell, on_path, tmp_path):
    python = image_python(tmp_path / "python3", "torch", torch="2.3.1+cu121")
    if on_path:
        torchrun = tmp_path / "torchrun"
        torchrun.write_text(f"#!{required('env')} {python.name}\n")
        torchrun.chmod(0o755)
    code, out, err = run(shell, RUN_TORCHRUN, "train.py", env={"PATH": str(tmp_path)})
    assert (code, out) == (EXIT_DO_NOT_RETRY, "")
    assert "it has torch 2.3.1+cu121, and 2.4 or later is needed" in err
    assert err.count("\n") == 1


@EVERY_SHELL
@pytest.mark.parametrize("first", ["#!/no/such/python3", "#!/bin/sh", "\x7fELF", ""])
def test_a_torchrun_of_which_the_python_is_not_known_is_run_as_it_is(shell, first, tmp_path):
    """A launcher that is no script, or one that finds its python in a way of its own."""
    torchrun = tmp_path / "torchrun"
    torchrun.write_text(f"{first}\n")
    torchrun.chmod(0o755)
    code, _, err = run(shell, RUN_TORCHRUN, "train.py", env={"PATH": str(tmp_path)})
    assert code != EXIT_DO_NOT_RETRY
    assert "PyTorch" not in err


TRAIN = """\
in_group() { env GROUP_RANK=$1 GROUP_WORLD_SIZE=$2 MASTER_ADDR=10.0.0.1 MASTER_PORT=$3 sh -c "$4"; }
in_group 1 3 40000 "setsid sleep 60 & until [ -e first ]; do sleep 0.05; done"
in_group 0 2 40001 "env GROUP_WORLD_SIZE=1 MASTER_PORT=40002 sleep 60 & until [ -e second ]; do sleep 0.05; done"
sleep 0.5
"""
"""A command that trains in one group, of which a process stays behind, and in another one, which has one within it."""


@EVERY_SHELL
def test_each_group_that_torchrun_puts_the_pod_into_is_said_once(shell, tmp_path, begin):
    often = RUN_COMMAND.replace(f"sleep {POLL_SECONDS}", "sleep 0.1")
    assert often != RUN_COMMAND
    errors = tmp_path / "errors"
    container = begin(shell, often, "/bin/sh", "-c", TRAIN, folder=tmp_path, errors=errors)
    told = f"{says(1, 3, port=40_000)}\n", f"{says(0, 2, port=40_001)}\n"
    eventually(lambda: errors.read_text() == told[0], "the first is said")
    (tmp_path / "first").touch()
    eventually(lambda: errors.read_text() == told[0] + told[1], "the second is said")
    (tmp_path / "second").touch()
    assert container.end() == (0, "", told[0] + told[1])


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("lacks", ["sleep", "grep", "tr"])
def test_where_the_image_lacks_what_it_takes_no_group_is_said_and_the_command_runs(shell, lacks, tmp_path):
    """In busybox they are part of the shell."""
    for name in {"sleep", "grep", "tr", "env", "setsid", "sh"} - {lacks}:
        (tmp_path / name).symlink_to(required(name))
    (tmp_path / "wait").symlink_to(required("sleep"))
    often = RUN_COMMAND.replace(f"sleep {POLL_SECONDS}", "sleep 0.1")
    command = "env GROUP_RANK=1 GROUP_WORLD_SIZE=3 MASTER_ADDR=10.0.0.1 MASTER_PORT=40000 ./wait 0.5; exit 4"
    container = start(shell, often, required("sh"), "-c", command, env={"PATH": str(tmp_path)}, folder=tmp_path)
    code, out, err = container.end()
    assert (code, out) == (4, "")
    assert last_rank(err) is None


@pytest.mark.parametrize("script", [RUN_COMMAND, RUN_TORCHRUN])
def test_the_kubelet_finds_nothing_to_expand_in_the_scripts(script):
    assert "$(" not in script
    assert "$$" not in script


def test_what_is_not_the_command_is_kept():
    container = {"name": "pytorch", "args": ["--x"], "command": ["a", "b"], "tty": True}
    assert {**wrapped(container), "command": ["a", "b"]} == container
    assert container["command"] == ["a", "b"]
