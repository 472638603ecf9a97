"""The settings of a pod, which the operator puts into its environment."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastic_worker import contract


class SettingsError(ValueError):
    """A variable is missing or invalid; the message names it."""


@dataclass(frozen=True)
class Settings:
    """Settings of one pod. Durations are in seconds; `host` and `port` are the coordinator's."""

    job_uid: str
    incarnation: int
    pod_name: str
    pod_uid: str
    address: str
    is_master: bool
    index: int
    epoch: int
    token: str
    host: str
    port: int
    processes: int
    preload: tuple[str, ...]
    warm: bool
    count_steps: bool
    checkpoint_path: str
    checkpoint_complete: str
    checkpoint_signal: str
    align_seconds: float
    grace_seconds: float
    stall_seconds: float
    max_failures: int
    final_exit_codes: frozenset[int]
    membership_file: str
    status_port: int
    scratch: str

    @property
    def coordinator_host(self) -> str:
        """The coordinator's host. The master's own launcher avoids the Service, which may lead to another master."""
        return "127.0.0.1" if self.is_master else self.host

    @property
    def leave_seconds(self) -> float:
        """Seconds for the processes of a pod that is terminated: the grace period less the launcher's own end."""
        return max(1.0, self.grace_seconds - min(5.0, 0.2 * self.grace_seconds))


def read(environ: Mapping[str, str]) -> Settings:
    """Read the settings of this pod. Raises SettingsError."""
    variables = _Variables(environ)
    return Settings(
        job_uid=variables.text(contract.ENV_JOB_UID),
        incarnation=variables.number(contract.ENV_INCARNATION),
        pod_name=variables.text(contract.ENV_POD_NAME),
        pod_uid=variables.text(contract.ENV_POD_UID),
        address=variables.text(contract.ENV_LOCAL_ADDR),
        is_master=variables.text(contract.ENV_ROLE) == contract.ROLE_MASTER,
        index=variables.number(contract.ENV_INDEX),
        epoch=variables.number(contract.ENV_MASTER_EPOCH, 1),
        token=variables.text(contract.ENV_TOKEN),
        host=variables.text(contract.ENV_MASTER_ADDR),
        port=variables.number(contract.ENV_MASTER_PORT, contract.MASTER_PORT),
        processes=variables.number(contract.ENV_NPROC, 1),
        preload=tuple(name.strip() for name in variables.text(contract.ENV_PRELOAD, "").split(",") if name.strip()),
        warm=variables.text(contract.ENV_WARM, "1") != "0",
        count_steps=variables.text(contract.ENV_COUNT_STEPS, "1") != "0",
        checkpoint_path=variables.text(contract.ENV_CHECKPOINT_PATH, ""),
        checkpoint_complete=variables.text(contract.ENV_CHECKPOINT_COMPLETE, ""),
        checkpoint_signal=variables.one_of(contract.ENV_CHECKPOINT_SIGNAL, ("", *contract.CHECKPOINT_SIGNALS)),
        align_seconds=variables.number(contract.ENV_ALIGN_SECONDS, 60),
        grace_seconds=variables.number(contract.ENV_GRACE_SECONDS, 30),
        stall_seconds=variables.number(contract.ENV_STALL_SECONDS, 1800),
        max_failures=variables.number(contract.ENV_MAX_FAILURES, 3),
        final_exit_codes=variables.numbers(contract.ENV_FINAL_EXIT_CODES),
        membership_file=variables.text(
            contract.ENV_MEMBERSHIP_FILE, str(Path(contract.MEMBERSHIP_FOLDER) / contract.MEMBERSHIP_FILE)
        ),
        status_port=variables.number(contract.ENV_STATUS_PORT, contract.STATUS_PORT),
        scratch=variables.folder("TMPDIR", tempfile.gettempdir()),
    )


class _Variables:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str, default: str | None = None) -> str:
        value = self._environ.get(name)
        if value is not None and value != "":
            return value
        if default is None:
            raise SettingsError(f"{name} is not set: this is run by the operator of elastic-pytorch.dev")
        return default

    def folder(self, name: str, default: str) -> str:
        """The default is also used if there is no such folder, because sbatch passes on the login node's TMPDIR."""
        folder = self.text(name, default)
        return folder if Path(folder).is_dir() else default

    def one_of(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, choices[0])
        if value not in choices:
            raise SettingsError(f"{name} must be one of {', '.join(filter(None, choices))}, not {value!r}")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self.text(name, None if default is None else str(default))
        try:
            return int(value)
        except ValueError as error:
            raise SettingsError(f"{name} must be a whole number, not {value!r}") from error

    def numbers(self, name: str) -> frozenset[int]:
        value = self.text(name, "")
        try:
            return frozenset(int(part) for part in value.split(",") if part.strip())
        except ValueError as error:
            raise SettingsError(f"{name} must be whole numbers with commas between, not {value!r}") from error
