"""Converts the flags of `run --local` to pods: the command of each, and the operator's variables for it.

Pure: the flags become the job that `run` would create, and that job becomes variables as in the operator's `build/`.
This machine supplies the values that the kubelet fills in on a cluster (addresses, uids, the token).
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from elastic_api.job import JobSpec
from elastic_api.template import gpus_of, main_container, nproc_of
from elastic_client.convert import manifest
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.run import RunFlags, from_flags
from elastic_client.exits import ClientError, Code
from elastic_client.local.machine import VISIBLE, Machine
from elastic_client.local.place import Sizes
from elastic_client.words import counted
from elastic_worker import contract

HERE = "127.0.0.1"
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
"""The pods meet on the loopback interface, whatever address the host name has."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""Torchrun's default for several processes, each of which would use all cores."""
GRACE_SECONDS = 30
"""The time for a checkpoint after Ctrl-C."""
FIRST_LOG_LEVEL = "warning"
"""The run itself reports the launchers' actions; ELASTIC_LOG_LEVEL=info shows their lines, too."""
LOG_LEVEL = "ELASTIC_LOG_LEVEL"
NO_GPUS = "-g 0 trains on the CPU"


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. `words` are the launcher's, `gpus_each` counts a pod's GPUs; `dropped` are the flags not used here.

    The coordinator listens at `port`, the master's /status at `status_port`.
    """

    name: str
    sizes: Sizes
    words: tuple[str, ...]
    spec: JobSpec
    uid: str
    token: str
    machine: Machine
    gpus_each: int
    port: int
    status_port: int
    dropped: tuple[str, ...] = ()

    @property
    def processes(self) -> int:
        """Training processes of each pod."""
        return nproc_of(self.spec, contract.ROLE_MASTER)

    @property
    def is_several(self) -> bool:
        """Whether more than one training process may share this machine."""
        return self.sizes.most * self.processes > 1

    @property
    def room(self) -> int | None:
        """How many pods get their own GPUs; None if they need none."""
        return len(self.machine.gpus) // self.gpus_each if self.gpus_each else None

    def pod_name(self, index: int) -> str:
        """The name of a pod: 0 is the master, workers are numbered from 1 on."""
        role, number = _role(index)
        return f"{self.name}-{role}-{number}"


@dataclass(frozen=True, slots=True)
class Place:
    """One start of a pod: `serial` counts all starts of the run, `epoch` those of masters."""

    index: int
    serial: int
    epoch: int
    membership_file: Path
    scratch: Path


def plan(
    typed: RunFlags, machine: Machine, *, checkpoint_path: str = "", ports: tuple[int, int], folder: Path | None = None
) -> Plan:
    """The run that these flags describe, in the working directory `folder`.

    Raises:
        ClientError: USAGE with the flag, its value and what to write instead; also for too few GPUs.
    """
    try:
        made = from_flags(replace(typed, image="this-machine", image_command="", mode="Elastic"))
        spec = _spec(made.manifest, checkpoint_path, folder or Path.cwd())
    except ConvertError as error:
        raise ClientError(Code.USAGE, str(error)) from None
    metadata = made.manifest["metadata"]
    whole = Plan(
        name=metadata.get("name") or metadata["generateName"].rstrip("-"),
        sizes=Sizes(spec.min_replicas, spec.max_replicas),
        words=_words(spec),
        spec=spec,
        uid=str(uuid.uuid4()),
        token=secrets.token_hex(16),
        machine=machine,
        gpus_each=_gpus_each(typed, spec, machine),
        port=ports[0],
        status_port=ports[1],
        dropped=made.lost,
    )
    check_room(whole.sizes, whole.room, whole.gpus_each, flag=f"--workers {typed.workers or spec.min_replicas}")
    return whole


def check_room(sizes: Sizes, room: int | None, gpus_each: int, *, flag: str) -> None:
    """Raise ClientError, USAGE if there are too few GPUs for the fewest pods."""
    if room is None or sizes.fewest <= room:
        return
    needed = counted(sizes.fewest * gpus_each, "GPU")
    message = f"{flag}: {counted(sizes.fewest, 'pod')} of {counted(gpus_each, 'GPU')} each need {needed}"
    raise ClientError(Code.USAGE, f"{message}, and this machine has room for {counted(room, 'such pod')}; {NO_GPUS}")


def size(sizes: Sizes, room: int | None) -> int:
    """The wanted number of pods."""
    return sizes.most if room is None else max(sizes.fewest, min(sizes.most, room))


def variables(plan: Plan, place: Place, environ: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a pod, from the user's `environ`. Variables of the flag -e have precedence."""
    kept = {key: value for key, value in environ.items() if not key.startswith(("ELASTIC_", "PET_"))}
    defaults = {**LOOPBACK, LOG_LEVEL: FIRST_LOG_LEVEL, **(ONE_THREAD if plan.is_several else {})}
    users = {entry["name"]: entry.get("value") or "" for entry in main_container(plan.spec.template).get("env") or ()}
    ours = {**_meeting(plan), **_identity(plan, place), **_orders(plan)}
    cards = _cards(plan, place.index) if plan.machine.gpus else {}
    given = {name: environ[name] for name in defaults if name in environ}
    return {**kept, **defaults, **given, **{name: str(value) for name, value in ours.items()}, **cards, **users}


def membership(number: int, sizes: Sizes, members: Mapping[str, str]) -> dict[str, object]:
    """The membership as the operator would write it on the master's pod: uids by name."""
    named = [{"name": name, "uid": uid} for name, uid in members.items()]
    return {"wish": number, "members": named, "min": sizes.fewest, "max": max(sizes.most, sizes.fewest)}


def _spec(made: Mapping[str, object], checkpoint_path: str, folder: Path) -> JobSpec:
    """The job's spec, with the additions for a run on this machine. Raises ConvertError."""
    spec = made["spec"]
    assert isinstance(spec, dict)
    watched = {"checkpointPath": str(folder / Path(checkpoint_path).expanduser())} if checkpoint_path else {}
    return manifest.check({**made, "spec": {**spec, "elasticity": {"gracePeriodSeconds": GRACE_SECONDS, **watched}}})


def _words(spec: JobSpec) -> tuple[str, ...]:
    """The launcher's command line, as `launched` of the operator makes it."""
    main = main_container(spec.template)
    command, args = main.get("command") or [], main.get("args") or []
    return ("--command", "--", *command, *args) if command else ("--", *args)


def _gpus_each(typed: RunFlags, spec: JobSpec, machine: Machine) -> int:
    """The GPUs of a pod: those of -g, else one for each process if the machine has GPUs. Raises ClientError, USAGE."""
    asked = gpus_of(spec.template)
    if asked and not machine.gpus:
        message = f"--gpus {asked}: torch {machine.torch} of {machine.python} finds no GPU: {NO_GPUS}"
        raise ClientError(Code.USAGE, message)
    if typed.gpus:
        return asked
    return nproc_of(spec, contract.ROLE_MASTER) if machine.gpus else 0


def _cards(plan: Plan, index: int) -> dict[str, str]:
    """The names of a pod's GPUs; none if it uses none."""
    first = index * plan.gpus_each
    return {VISIBLE: ",".join(plan.machine.gpus[first : first + plan.gpus_each])}


def _role(index: int) -> tuple[str, int]:
    return (contract.ROLE_WORKER, index - 1) if index else (contract.ROLE_MASTER, 0)


def _meeting(plan: Plan) -> dict[str, object]:
    return {
        contract.ENV_MASTER_ADDR: HERE,
        contract.ENV_MASTER_PORT: plan.port,
        contract.ENV_WORLD_SIZE: plan.sizes.most,
        contract.ENV_NNODES: f"{plan.sizes.fewest}:{plan.sizes.most}",
        contract.ENV_RDZV_BACKEND: contract.ELASTIC_BACKEND,
        contract.ENV_RDZV_ENDPOINT: f"{HERE}:{plan.port}",
        contract.ENV_RDZV_ID: f"{plan.uid}-1",
        contract.ENV_LOCAL_ADDR: HERE,
        contract.ENV_TOKEN: plan.token,
        contract.ENV_UNBUFFERED: 1,
    }


def _identity(plan: Plan, place: Place) -> dict[str, object]:
    role, number = _role(place.index)
    own: dict[str, object] = {
        contract.ENV_JOB_NAME: plan.name,
        contract.ENV_JOB_UID: plan.uid,
        contract.ENV_ROLE: role,
        contract.ENV_INDEX: number,
        contract.ENV_INCARNATION: 1,
        contract.ENV_POD_NAME: plan.pod_name(place.index),
        contract.ENV_POD_UID: uid(plan, place),
        contract.ENV_MASTER_EPOCH: place.epoch,
        contract.ENV_STATUS_PORT: 0 if place.index else plan.status_port,
        "TMPDIR": place.scratch,
    }
    return own if place.index else {**own, contract.ENV_MEMBERSHIP_FILE: place.membership_file}


def uid(plan: Plan, place: Place) -> str:
    """The uid of that start of a pod."""
    return f"{plan.pod_name(place.index)}-{place.serial}"


def _orders(plan: Plan) -> dict[str, object]:
    """The launcher's orders from the job's spec."""
    elasticity, recovery = plan.spec.elasticity, plan.spec.recovery
    return {
        contract.ENV_NPROC_PER_NODE: plan.processes,
        contract.ENV_NPROC: plan.processes,
        contract.ENV_PRELOAD: ",".join(plan.spec.runtime.preload),
        contract.ENV_CHECKPOINT_PATH: elasticity.checkpoint_path,
        contract.ENV_CHECKPOINT_COMPLETE: elasticity.checkpoint_complete,
        contract.ENV_CHECKPOINT_SIGNAL: elasticity.checkpoint_signal,
        contract.ENV_ALIGN_SECONDS: elasticity.align_timeout_seconds,
        contract.ENV_GRACE_SECONDS: elasticity.grace_period_seconds,
        contract.ENV_STALL_SECONDS: recovery.stall_seconds,
        contract.ENV_MAX_FAILURES: recovery.max_failures_without_progress,
        contract.ENV_FINAL_EXIT_CODES: ",".join(map(str, recovery.final_exit_codes)),
    }
