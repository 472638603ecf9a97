"""Converts an ElasticPyTorchJob to the command lines that start it by hand, one for each machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elastic_api.job import JobSpec
from elastic_client.code.objects import MOUNT, code_of
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.job_line import JobLine, Place
from elastic_client.convert.manifest import check, fitting_name
from elastic_worker.contract import (
    ENV_JOB_NAME,
    ENV_JOB_UID,
    ENV_POD_RANK,
    ENV_ROLE,
    MASTER_PORT,
    ROLE_MASTER,
    ROLE_WORKER,
)

HOST = "HOST"
_HOST = re.compile(r"[\w.:%\[\]-]+")


def to_torchrun(
    body: Mapping[str, Any], *, nodes: int | None = None, host: str = HOST, standalone: bool = False
) -> list[str]:
    """The lines to type for a job `body` (the whole object), with comments on the machines.

    Args:
        body: The job.
        nodes: The number of machines; by default the job's most pods.
        host: The first machine's name, by which the others reach it.
        standalone: One line for one machine without others.

    Raises:
        ConvertError: the operator would not accept the job, it may not have that size, or `standalone` is given with
        another machine.
    """
    if standalone and (nodes is not None or host != HOST):
        flag = f"--host {host}" if nodes is None else f"--nodes {nodes}"
        raise ConvertError(f"--standalone {flag}: is for one machine, which meets nobody: take one of them away")
    if not _HOST.fullmatch(host):
        raise ConvertError(f"--host {host!r}: write a machine's name or address")
    spec = check(body)
    metadata = body.get("metadata") or {}
    name = fitting_name(str(metadata.get("name") or metadata.get("generateName") or "job"))
    code = [*_code(spec)]
    number = spec.sizes()[-1] if nodes is None else nodes
    if standalone or spec.sizes() == (1,):
        return [f"# {name} on one machine", *code, _alone(JobLine(spec, ROLE_MASTER), name)]
    if number not in spec.sizes():
        raise ConvertError(f"--nodes {number}: the job may have {_sizes(spec)}: write one of these")
    place = f"{host}:{MASTER_PORT}"
    lines = [f"# {name} on {number} machines: one line on each. They wait for each other at {place}.", *code]
    for index in range(number):
        role = ROLE_WORKER if index else ROLE_MASTER
        lines.append(f"# machine {index + 1}" + ("" if index else f", which the others reach as {host}"))
        lines.append(_meeting(JobLine(spec, role), spec, name, number, host, index))
    return lines


def _code(spec: JobSpec) -> Iterator[str]:
    """The place of the code, if `run --code` shipped it."""
    if name := code_of(spec.template_of(ROLE_MASTER)):
        yield f"# The code at {MOUNT} is in the ConfigMap {name}: put the folder that it was made of there."


def _sizes(spec: JobSpec) -> str:
    sizes = spec.sizes()
    is_range = sizes == tuple(range(sizes[0], sizes[-1] + 1)) and len(sizes) > 2
    return f"{sizes[0]} to {sizes[-1]} machines" if is_range else f"{', '.join(map(str, sizes))} machines"


def _alone(line: JobLine, name: str) -> str:
    here = f"localhost:{MASTER_PORT}"
    place = Place("1", here, "localhost", str(MASTER_PORT), "alone", "1", "is_host=1", _own(name, 0))
    return _typed(line, line.settings(place), line.alone())


def _meeting(line: JobLine, spec: JobSpec, name: str, number: int, host: str, index: int) -> str:
    fewest = spec.minimum
    nnodes = f"{fewest}:{number}" if fewest < number else str(number)
    conf = f"is_host={int(index == 0)}"
    place = Place(
        nnodes,
        shlex.quote(f"{host}:{MASTER_PORT}"),
        shlex.quote(host),
        str(MASTER_PORT),
        name,
        str(number),
        conf,
        _own(name, index),
    )
    return _typed(line, line.settings(place), line.words(place))


def _own(name: str, index: int) -> dict[str, str]:
    """The variables with the identity of job and pod. They are equal for all runs of a job."""
    role = ROLE_WORKER if index else ROLE_MASTER
    return {ENV_JOB_NAME: name, ENV_JOB_UID: name, ENV_POD_RANK: str(index), ENV_ROLE: role}


def _typed(line: JobLine, settings: Mapping[str, str], words: Sequence[str]) -> str:
    """The line with its variables before it. A variable without a value in the manifest must be set already."""
    own = {variable.name: variable.value for variable in line.variables if not variable.missing}
    given = [f"{variable}={value}" for variable, value in {**settings, **own}.items()]
    folder = [f"cd {line.quoted(line.folder)} &&"] if line.folder else []
    prefix = [*folder, *given]
    if any("${" in word for word in (*prefix, *words)):
        # The shell expands words before it sets the variables before a command.
        prefix = [*(f"export {assignment} &&" for assignment in given), *folder]
    missing = [
        f"# {variable.name} was {variable.missing}: export it first\n"
        for variable in line.variables
        if variable.missing
    ]
    missing += [f"# {name} is set by the operator only: its name stays\n" for name in line.not_set()]
    return "".join(missing) + " ".join([*prefix, *words])
