"""A whole job: pods, the operator's membership, and the records of the training processes."""

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import sys
import urllib.request
from pathlib import Path

import pytest

from elastic_worker import contract
from tests.kit.wait import until
from tests.worker.job.network import SERVICE, Network
from tests.worker.job.pod import FAKE, PYTHON, REAL, WORKER, LocalPod, torch_environment

SCRIPTS = Path(__file__).parent
WAIT_SECONDS = 90.0
TOKEN = "a secret of this job"
REAL_TORCH = pytest.mark.parametrize("tree", [REAL])
"""Marks a test that uses the real torch in `make test`, too."""
FAKE_TORCH = pytest.mark.parametrize("tree", [FAKE])
"""Marks a test in which no training process takes part."""


class LocalJob:
    """Pod 0 is the master. `options` go to the training script, `environ` to the launchers. `worker`: the package that
    the next pods run."""

    def __init__(
        self,
        folder,
        *,
        options=(),
        fewest=1,
        checkpoint=True,
        nproc=1,
        grace=20,
        command=None,
        environ=(),
        tree=REAL,
        network=False,
        script="train.py",
    ):
        self.folder, self.fewest, self.nproc, self.grace = Path(folder), fewest, nproc, grace
        self.folder.mkdir(parents=True, exist_ok=True)
        self.notes = self.folder
        self.command = command or ["--", str(SCRIPTS / script), str(folder), *map(str, options)]
        self.worker = WORKER
        self.environ = {**torch_environment(tree), **dict(environ)}
        if checkpoint:
            self.environ[contract.ENV_CHECKPOINT_PATH] = str(self.folder / "checkpoint.pt")
        self.ports = {"coordinator": free_port(), "status": free_port()}
        self.pods, self.all_pods, self.epoch, self.memberships = {}, [], 0, 0
        self.network = Network() if network else None
        if self.network is not None:
            self.environ["GLOO_SOCKET_IFNAME"] = "eth0"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pod in self.all_pods:
            if pod.code is None:
                pod.kill()
        if self.network is not None:
            self.network.close()

    # -- the operator's part ------------------------------------------------------------------------------------------

    def start(self, *indices, **environ):
        """Start new pods; the membership names all existing ones."""
        for index in indices:
            self.pods[index] = self._pod(index, environ)
            self.all_pods.append(self.pods[index])
        self.write_membership()

    def write_membership(self, *indices, **more):
        """Write the membership for these pods, by default for all running ones."""
        named = indices or [index for index, pod in self.pods.items() if pod.code is None]
        members = [{"name": self.pods[i].name, "uid": self.pods[i].uid} for i in named]
        self.memberships += 1
        membership = {"wish": self.memberships, "members": members, "min": self.fewest, "max": 8, **more}
        tell(self.folder / "membership", json.dumps(membership))

    def _pod(self, index, environ):
        role = contract.ROLE_WORKER if index else contract.ROLE_MASTER
        name = f"toy-{role}-{max(0, index - 1)}"
        self.epoch += not index
        uid = f"{name}-{len(self.all_pods)}"
        # The path is short, because Unix sockets are in the folder.
        scratch = self.folder / f"t{len(self.all_pods)}"
        scratch.mkdir()
        place, address, inside = self.network.add() if self.network else ("", "127.0.0.1", [])
        if self.network is not None and not index:
            self.network.serve(place)
        own = {
            contract.ENV_JOB_UID: "job-uid",
            contract.ENV_INCARNATION: 1,
            contract.ENV_POD_NAME: name,
            contract.ENV_POD_UID: uid,
            contract.ENV_LOCAL_ADDR: address,
            contract.ENV_ROLE: role,
            contract.ENV_INDEX: max(0, index - 1),
            contract.ENV_MASTER_EPOCH: self.epoch,
            contract.ENV_TOKEN: TOKEN,
            contract.ENV_MASTER_ADDR: SERVICE if self.network else "127.0.0.1",
            contract.ENV_MASTER_PORT: self.ports["coordinator"],
            contract.ENV_NPROC: self.nproc,
            contract.ENV_MEMBERSHIP_FILE: self.folder / "membership",
            contract.ENV_STATUS_PORT: free_port() if index else self.ports["status"],
            contract.ENV_GRACE_SECONDS: self.grace,
            "TMPDIR": scratch,
            **environ,
        }
        everything = {**self.environ, **{key: str(value) for key, value in own.items()}}
        log = self.folder / f"log-{uid}.txt"
        pod = LocalPod(name, uid, self._argv(), environ=everything, log=log, inside=inside, place=place)
        pod.scratch = scratch
        return pod

    def _argv(self):
        """The command of a new pod."""
        return [PYTHON, str(self.worker), *self.command]

    def finish(self, *, epochs=10):
        """Let the script end some epochs later, so that all ranks learn of it in time; return the number of epochs."""
        last = self.steps()[-1]["epoch"] + epochs
        tell(self.folder / "epochs", last)
        return last

    # -- observations -------------------------------------------------------------------------------------------------

    def status(self):
        """The master's /status; {} while it does not answer."""
        if self.network is not None:
            return json.loads(self.network.get(self.pods[0].place, self.ports["status"], "/status") or "{}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['status']}/status", timeout=20) as answer:
                return json.load(answer)
        except (OSError, ValueError):
            return {}

    def steps(self, name=None):
        """The recorded steps of all training processes, or of one pod's, by time."""
        files = self.notes.glob(f"steps-{name or '*'}-*.jsonl")
        lines = [line for file in files for line in file.read_text().splitlines() if line.endswith("}")]
        return sorted((json.loads(line) for line in lines), key=lambda step: step["time"])

    def generation(self):
        """The latest generation that has done a step."""
        return max((step["generation"] for step in self.steps()), default=0)

    def wait(self, what, look, *, seconds=WAIT_SECONDS):
        """The first true value of `look`; if there is none, the error shows all logs."""
        return until(what, look, seconds=seconds, report=self.report)

    def wait_training(self, pods, *, after=0):
        """Wait until `pods` pods have trained two epochs in one generation later than `after`; return that."""

        def trains():
            steps = [step for step in self.steps() if step["generation"] > after]
            last = steps[-1]["generation"] if steps else 0
            mine = [s for s in steps if s["generation"] == last]
            ranks = {s["rank"] for s in mine if s["world"] == pods * self.nproc}
            return len(ranks) == pods * self.nproc and len({s["epoch"] for s in mine}) >= 2 and last

        return self.wait(f"{pods} pods to train", trains)

    def wait_code(self, pod, *, seconds=WAIT_SECONDS):
        """The pod's exit code, once it has ended."""
        self.wait(f"the end of {pod.name}", lambda: pod.code is not None, seconds=seconds)
        return pod.code

    def report(self):
        """The ends of all logs, the status, and what the processes do."""
        logs = "\n".join(
            f"--- {pod.uid} (ended: {pod.code})\n{pod.said()[-3000:]}\n{pod.at_work()}" for pod in self.all_pods
        )
        return f"{json.dumps(self.status())[:3000]}\n{logs}"

    # -- what must hold -----------------------------------------------------------------------------------------------

    def assert_no_epoch_skipped(self):
        """Rank 0 did all epochs up to its last, in order; some perhaps again after a loss."""
        epochs = [step["epoch"] for step in self.steps() if step["rank"] == 0 and step["step"] == 0]
        assert epochs, self.report()
        for before, after in itertools.pairwise(epochs):
            assert after <= before + 1, f"after epoch {before} came {after}"
        assert epochs[0] == 0

    def repeated(self):
        """How many epochs were done again, after they had been done to their end."""
        mine = [step for step in self.steps() if step["rank"] == 0]
        last = max(step["step"] for step in mine)
        ends = [step["epoch"] for step in mine if step["step"] == last]
        return len(ends) - len(set(ends))

    def assert_nothing_left(self):
        """After the end of all pods: no file of theirs, no process, no listening socket."""
        for pod in self.all_pods:
            assert pod.code is not None, f"{pod.name} still runs"
            left = sorted(pod.scratch.glob("elastic-*"))
            assert not left, f"{pod.name} left {left}"
        for port in self.ports.values() if self.network is None else ():
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)), f"somebody listens at {port}"


def tell(path, what):
    """Write it at once, as processes look at any time."""
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(str(what))
    unfinished.replace(path)


def free_port():
    """A port that nobody listens at now, and that nobody else in this run of the tests is given."""
    for port in _ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError("this process has used up its ports")


def _own_ports():
    """In any order, as two runs may share a machine; below those that the kernel and devclusters choose from."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")
    ports = range(12_000 + int(worker.removeprefix("gw")), 20_000, int(workers))
    return random.Random().sample(ports, len(ports))


_ports = iter(_own_ports())


def end(pid, number=signal.SIGKILL):
    """Send a process a signal; it may be gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        print(f"{pid} was gone already", file=sys.stderr)
