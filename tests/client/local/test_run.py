"""Whole runs on this machine: the command as a person types it, real launchers, a torch as fast as plain Python or a
real one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from elastic_client.exits import Code
from elastic_worker import contract
from tests.docs.pages import REPOSITORY
from tests.kit.proc import children_of, descendants_of, environ_of, is_running
from tests.kit.wait import until
from tests.worker.job.local import SCRIPTS
from tests.worker.job.pod import FAKE, PYTHON, REAL, torch_environment

pytestmark = [pytest.mark.processes, pytest.mark.programs, pytest.mark.timeout(240)]

WAIT_SECONDS = 90
ELASTIC = [sys.executable, "-m", "elastic_client"]
EXAMPLE = REPOSITORY / "examples" / "elastic" / "train.py"


class Training:
    """`run --local` in a folder of its own, which is also where its files and its pods' are."""

    def __init__(self, folder, *words, tree=FAKE):
        self.folder, self.temporary, self.runtime = folder, folder / "tmp", folder / "runtime"
        for made in (self.temporary, self.runtime):
            made.mkdir()
        here = {"TMPDIR": str(self.temporary), "XDG_RUNTIME_DIR": str(self.runtime), "PYTHONUNBUFFERED": "1"}
        self.environ = {**torch_environment(tree), **here}
        self.out, self.err = folder / "out", folder / "err"
        line = [*ELASTIC, "run", "--local", "--name", "toy", "--python", PYTHON, *map(str, words)]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(line, env=self.environ, cwd=folder, stdout=out, stderr=err)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """No process outlives the test."""
        for pid in [*descendants_of(self.process.pid), self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(20)

    def pods(self):
        """Pids of the launchers by the pod's name."""
        return {
            name: pid for pid in children_of(self.process.pid) if (name := environ_of(pid).get(contract.ENV_POD_NAME))
        }

    def scale(self, size):
        """As in another terminal."""
        line = [*ELASTIC, "scale", "toy", size]
        return subprocess.run(line, env=self.environ, capture_output=True, text=True, check=True, timeout=60).stdout

    def wait_for(self, pattern, *, of="out", count=1):
        """Until the output has that many matches of the pattern."""
        file = self.out if of == "out" else self.err
        until(
            pattern, lambda: len(re.findall(pattern, file.read_text())) >= count, seconds=WAIT_SECONDS, report=self.said
        )

    def end(self, number=None, *, seconds=WAIT_SECONDS):
        """Its exit code, after that signal."""
        if number is not None:
            self.process.send_signal(number)
        self.until("the end of the run", lambda: self.process.poll() is not None, seconds=seconds)
        return self.process.returncode

    def until(self, what, look, *, seconds=WAIT_SECONDS):
        """Waits; where that is in vain, the error has the output."""
        until(what, look, seconds=seconds, report=self.said)

    def said(self):
        """Both streams."""
        return f"{self.out.read_text()}\n--- stderr\n{self.err.read_text()}"

    def left(self):
        """Files that should have gone with the run."""
        hidden = [file.name for file in self.folder.glob(".elastic-*")]
        return [*hidden, *self.temporary.iterdir(), *self.runtime.glob("*/*")]


def test_a_run_changes_its_size_beside_scale_and_ends_at_ctrl_c_after_a_checkpoint(tmp_path):
    options = ("--epochs", 100_000, "--steps", 5, "--pause", 0.02, "--checkpoint", "c.pt")
    words = ("--workers", "1:2", "--checkpoint-path", "c.pt", "--", EXAMPLE, *options)
    with Training(tmp_path, *words, tree=REAL) as run:
        run.wait_for(r"(?m)^\[0 master-0\] epoch \d+ on 2 processes")
        assert "may have 1 pod (before: 1 to 2)" in run.scale("1")
        run.wait_for("epoch [0-9]+ on 1 processes", count=2)
        run.scale("2")
        run.wait_for(r"2 pods \(Join\)", of="err")
        assert run.end(signal.SIGINT) == Code.INTERRUPTED, run.said()
        assert re.search(r"AFTER +PODS +REASON +PAUSE +STEPS LOST\n", run.err.read_text())
        assert re.search(r"2 -> 1 +Leave +[\d.]+ s +[0-5]\n", run.err.read_text()), run.said()
        assert run.left() == []


def test_a_run_that_succeeds_exits_with_0_and_runs_where_the_code_is(tmp_path):
    words = ("--workers", "2", "--code", SCRIPTS, "--", "train.py", tmp_path, "--epochs", 3)
    with Training(tmp_path, *words) as run:
        assert run.end() == Code.DONE, run.said()
        assert "run toy: succeeded after" in run.err.read_text()
        assert {file.name for file in tmp_path.glob("finished-*")} == {"finished-0", "finished-1"}
        assert run.left() == []


def test_a_script_that_fails_ends_the_run_with_one_line_and_1(tmp_path):
    failing = ("--fail-at", 3, "--fail-rank", 1)
    words = ("--workers", "2", "--", SCRIPTS / "train.py", tmp_path, *failing)
    with Training(tmp_path, *words) as run:
        assert run.end() == Code.FAILED, run.said()
        assert re.search(
            r"(?m)^elastic: run toy failed after .*: toy-master-0 ended with exit code 93; see the lines above$",
            run.said(),
        )
        assert run.left() == []


@pytest.mark.parametrize("pod", ["toy-worker-0", "toy-master-0"])
def test_a_lost_pod_starts_again_and_the_others_train_with_it(tmp_path, pod):
    words = ("--workers", "2", "--checkpoint-path", "checkpoint.pt", "--", SCRIPTS / "train.py", tmp_path)
    with Training(tmp_path, *words) as run:
        run.wait_for(r"0 -> 2 pods", of="err")
        before = run.pods()[pod]
        os.kill(before, signal.SIGKILL)
        run.wait_for(rf"{pod} was killed by SIGKILL: it starts again", of="err")
        run.until("the pod again", lambda: run.pods().get(pod, before) != before)
        run.wait_for(r"-> 2 pods", of="err", count=2)
        assert run.end(signal.SIGTERM) == Code.STOPPED, run.said()
        assert run.left() == []


def test_pods_leave_when_the_run_itself_is_killed(tmp_path):
    with Training(tmp_path, "--workers", "2", "--", SCRIPTS / "train.py", tmp_path) as run:
        run.wait_for(r"0 -> 2 pods", of="err")
        pods = list(run.pods().values())
        assert len(pods) == 2
        run.end(signal.SIGKILL)
        run.until("their end", lambda: not any(map(is_running, pods)))


def test_a_second_ctrl_c_waits_for_nobody(tmp_path):
    """Launchers that stand still would have the grace period, and five seconds more."""
    with Training(tmp_path, "--workers", "2", "--", SCRIPTS / "train.py", tmp_path) as run:
        run.wait_for(r"0 -> 2 pods", of="err")
        for pid in run.pods().values():
            os.kill(pid, signal.SIGSTOP)
        run.process.send_signal(signal.SIGINT)
        run.wait_for("ends within 30 s", of="err")
        assert run.end(signal.SIGINT, seconds=20) == Code.INTERRUPTED
        assert run.left() == []
