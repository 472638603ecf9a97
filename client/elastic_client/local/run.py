"""Takes the operator's place for a run on this machine: compares the present and the wanted state, and acts.

    sizes (a file that `scale` replaces) ──► how many pods ──► pods that start, pods that leave ──► the membership

It is level-triggered: each pass compares, and earlier memberships are not remembered. The run ends when its master
ends, or when the user ends it; all pods end before it. The master reads the membership from a file.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from elastic_client import screen
from elastic_client.commands.logs import COLOURS
from elastic_client.exits import ClientError, Code
from elastic_client.local import place, status
from elastic_client.local import pod as pods
from elastic_client.local.plan import GRACE_SECONDS, Place, Plan, membership, size, variables
from elastic_client.local.pod import Pod, died
from elastic_client.words import age, counted, now, sizes
from elastic_worker import contract

LOOK_SECONDS = 0.1
STATUS_SECONDS = 0.5
SUCCESS = ""
AGAIN_SECONDS = 2.0
"""The pause before a lost pod starts again. At the end of a run, workers end sooner than the master."""
MOST_RESTARTS = 10
"""The number of lost pods after which the run gives up."""
LINGER_SECONDS = 10.0
"""The time for the workers to end by themselves after the master."""
KILL_SECONDS = 5.0
"""The time beyond the grace period before pods are killed."""
SIGNALS = {signal.SIGINT: Code.INTERRUPTED, signal.SIGTERM: Code.STOPPED, signal.SIGHUP: Code.STOPPED}
NOTE_OF_MASTER = ".elastic-master-{}.lock"
"""The file that masters leave beside checkpoints. A job that is ended does not remove it."""


def train(plan: Plan, environ: Mapping[str, str]) -> Code:
    """Train to the end; returns the outcome. Raises ClientError: FAILED if the script failed, USAGE for a used name."""
    at = place.folder(environ)
    run = place.Run(plan.name, os.getpid(), plan.room, plan.gpus_each)
    with place.held(run, plan.sizes, at=at), _folder() as folder:
        pods.install(folder)
        try:
            return asyncio.run(LocalRun(plan, environ, folder, at).run())
        finally:
            _remove_notes(plan)


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod that ended by itself: when it starts again, in seconds of the event loop's clock, and how it ended."""

    again_at: float
    message: str


class LocalRun:
    """One run, with private files in `folder`; `at` is where `scale` finds it."""

    def __init__(self, plan: Plan, environ: Mapping[str, str], folder: Path, at: Path) -> None:
        self._plan, self._environ, self._folder, self._at = plan, environ, folder, at
        self._pods: dict[int, Pod] = {}
        self._sizes = plan.sizes
        self._serial, self._epoch, self._membership_number, self._restarts = 0, 0, 0, 0
        self._written_membership: tuple[place.Sizes, dict[str, str]] | None = None
        self._lost: dict[int, Lost] = {}
        self._stopped: Code | None = None
        self._outcome: str | None = None
        """SUCCESS, or in words why the run failed; None while it has not ended by itself."""
        self._seen = status.Seen(now(), plan.processes)

    async def run(self) -> Code:
        """Run to the end. Raises ClientError, FAILED if the run failed."""
        self._greet()
        watching = asyncio.create_task(self._follow_status())
        with self._signals():
            try:
                await self._until_end()
                await self._end_pods()
            finally:
                watching.cancel()
                for pod in self._pods.values():
                    pod.kill()
        self._conclude()
        return self._stopped or Code.DONE

    async def _until_end(self) -> None:
        """Run until the master has ended or the user ends the run."""
        while self._stopped is None and self._outcome is None:
            self._read_sizes()
            await self._bury()
            if self._outcome is None:
                await self._start_missing()
                self._send_away()
                self._write_membership()
            await asyncio.sleep(LOOK_SECONDS)

    # -- the wanted state ---------------------------------------------------------------------------------------------

    def _read_sizes(self) -> None:
        """Read the sizes that `scale` has written, and report them."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            wanted = place.read_sizes(self._plan.name, at=self._at)
            if wanted != self._sizes:
                self._sizes = wanted
                self._tell(f"from now on {self._allowed()}")

    @property
    def _size(self) -> int:
        return size(self._sizes, self._plan.room)

    # -- pods ---------------------------------------------------------------------------------------------------------

    async def _bury(self) -> None:
        """Forget ended pods, and handle their ends."""
        for pod in [pod for pod in self._pods.values() if pod.code is not None]:
            await pod.finish()
            del self._pods[pod.index]
            assert pod.code is not None
            if pod.is_leaving:
                continue
            if not pod.index and (pod.code == 0 or 0 < pod.code != contract.EXIT_LEFT):
                self._outcome = f"{pod.name} {died(pod.code)}" if pod.code else SUCCESS
                return
            self._lose(pod, pod.code)

    def _lose(self, pod: Pod, code: int) -> None:
        """Handle a pod that ended by itself: it starts again unless the run ends meanwhile."""
        self._lost[pod.index] = Lost(_clock() + AGAIN_SECONDS, f"{pod.name} {died(code)}")

    async def _start_missing(self) -> None:
        """Start missing pods; a lost one after a pause."""
        for index in [index for index in range(self._size) if index not in self._pods]:
            lost = self._lost.get(index)
            if lost is not None and _clock() < lost.again_at:
                continue
            if lost is not None:
                self._restarts += 1
                if self._restarts > MOST_RESTARTS:
                    self._outcome = f"{lost.message}, after {MOST_RESTARTS} other losses of pods"
                    return
                self._tell(f"{lost.message}: it starts again")
            self._pods[index] = await self._start(index)
            self._lost.pop(index, None)

    async def _start(self, index: int) -> Pod:
        """Start a pod. Raises ClientError, FAILED if no process can be started."""
        self._serial += 1
        self._epoch += not index
        scratch = pods.scratch(self._folder, self._serial)
        here = Place(index, self._serial, self._epoch, self._membership_file, scratch)
        environ = variables(self._plan, here, self._environ)
        try:
            return await pods.start(
                self._plan.words,
                python=self._plan.machine.python,
                launcher=self._folder,
                environ=environ,
                index=index,
                prefix=lambda: self._prefix(index),
            )
        except OSError as error:
            message = f"run {self._plan.name}: {self._plan.pod_name(index)} cannot be started: {error.strerror}"
            raise ClientError(Code.FAILED, message) from None

    def _send_away(self) -> None:
        """Let surplus pods leave, the highest numbers first."""
        for pod in self._pods.values():
            if pod.index >= self._size:
                pod.leave()

    @property
    def _membership_file(self) -> Path:
        return self._folder / "wish"

    def _write_membership(self) -> None:
        """Write the membership for the master, if it has changed."""
        members = {pod.name: pod.uid for _, pod in sorted(self._pods.items()) if not pod.is_leaving}
        if self._written_membership != (self._sizes, members):
            self._written_membership = self._sizes, members
            self._membership_number += 1
            unfinished = self._membership_file.with_name("wish.tmp")
            unfinished.write_text(json.dumps(membership(self._membership_number, self._sizes, members)))
            unfinished.replace(self._membership_file)

    # -- the end ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Handle signals: the first ends the run like SIGTERM a pod, the second at once. Ignored ones stay ignored."""
        loop = asyncio.get_running_loop()
        previous = {number: signal.getsignal(number) for number in SIGNALS}
        previous = {number: handler for number, handler in previous.items() if handler != signal.SIG_IGN}
        for number in previous:
            loop.add_signal_handler(number, self._stop, SIGNALS[number])
        try:
            yield
        finally:
            for number, handler in previous.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _stop(self, code: Code) -> None:
        if self._stopped is not None:
            for pod in self._pods.values():
                pod.kill()
            return
        self._stopped = code
        self._tell(f"ends within {GRACE_SECONDS} s, after a checkpoint if the script writes one; Ctrl-C: at once")

    async def _end_pods(self) -> None:
        """End all pods: by themselves after the master, else by SIGTERM; the remaining ones are killed."""
        if self._stopped is None:
            await self._wait_for_pods(LINGER_SECONDS)
        for pod in self._pods.values():
            pod.leave()
        await self._wait_for_pods(GRACE_SECONDS + KILL_SECONDS)
        for pod in self._pods.values():
            pod.kill()
        await self._wait_for_pods(KILL_SECONDS)

    async def _wait_for_pods(self, seconds: float) -> None:
        ending = [asyncio.create_task(pod.finish()) for pod in self._pods.values()]
        if ending:
            await asyncio.wait(ending, timeout=seconds)
        self._pods = {index: pod for index, pod in self._pods.items() if pod.code is None}

    # -- the output ---------------------------------------------------------------------------------------------------

    async def _follow_status(self) -> None:
        """Poll the master's status, and report changes."""
        while True:
            for change in self._seen.take(await asyncio.to_thread(status.ask, self._plan.status_port)):
                self._tell(f"{status.sizes_of(change)} pods ({change['reason']})")
            await asyncio.sleep(STATUS_SECONDS)

    def _prefix(self, index: int) -> str:
        """The prefix as in `logs`: the rank of the pod's first process, if it is known, and the pod."""
        name = self._plan.pod_name(index)
        short, rank = name.removeprefix(f"{self._plan.name}-"), self._seen.ranks.get(name)
        prefix = f"[{short}] " if rank is None else f"[{rank} {short}] "
        if sys.stdout.isatty() and "NO_COLOR" not in self._environ:
            return f"\x1b[{COLOURS[index % len(COLOURS)]}m{prefix}\x1b[0m"
        return prefix

    def _greet(self) -> None:
        plan = self._plan
        each = f"{plan.processes} process{'es' if plan.processes > 1 else ''} each"
        where = f"{counted(plan.gpus_each, 'GPU')} each" if plan.gpus_each else "on the CPU"
        torch = f"torch {plan.machine.torch} of {plan.machine.python}"
        self._tell(f"{self._allowed()}, {each}, {where}; {torch}")
        other = self._sizes.fewest if self._size > self._sizes.fewest else self._size + 1
        screen.note(f"next, in another terminal: `kubectl elastic scale {plan.name} {other}`; Ctrl-C ends the run")

    def _allowed(self) -> str:
        """The wanted number of pods, and the reason."""
        room = self._plan.room
        has_room = "" if room is None or room >= self._sizes.most else f", GPUs for {room}"
        return f"{counted(self._size, 'pod')} ({sizes(self._sizes.fewest, self._sizes.most)} allowed{has_room})"

    def _tell(self, text: str) -> None:
        screen.note(f"run {self._plan.name}: {text}")

    def _conclude(self) -> None:
        """Print the changes with their costs. Raises ClientError, FAILED if the run failed."""
        plan, took = self._plan, age(self._seen.begun, now())
        if rows := self._seen.rows():
            screen.print_grid(screen.console(sys.stderr), status.COLUMNS, rows)
        step = "" if self._seen.step is None else f", at step {self._seen.step}"
        if self._stopped is not None:
            self._tell(f"was ended after {took}{step}")
        elif self._outcome:
            message = f"run {plan.name} failed after {took}{step}: {self._outcome}; see the lines above"
            raise ClientError(Code.FAILED, message)
        else:
            self._tell(f"succeeded after {took}{step}")


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the launcher, the membership and the pods' files. Its path is short, because it contains sockets."""
    made = Path(tempfile.mkdtemp(prefix="elastic-run-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_notes(plan: Plan) -> None:
    """Remove the files that masters have left beside checkpoints, in known and usual folders."""
    path, here = Path(plan.spec.elasticity.checkpoint_path or "."), Path.cwd()
    for folder in {path, path.parent, here, *(child for child in here.glob("*") if child.is_dir())}:
        with suppress(OSError):
            (folder / NOTE_OF_MASTER.format(plan.uid)).unlink(missing_ok=True)


def _clock() -> float:
    return asyncio.get_running_loop().time()
