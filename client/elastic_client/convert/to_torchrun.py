"""From an ElasticPyTorchJob to the command lines that start it by hand: one for each machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elastic_api.job import JobSpec
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.job_line import JobLine, Place
from elastic_client.convert.manifest import check, fitting_name
from elastic_worker.contract import ENV_POD_RANK, MASTER_PORT, ROLE_MASTER, ROLE_WORKER

HOST = "HOST"


def to_torchrun(
    body: Mapping[str, Any], *, nodes: int | None = None, host: str = HOST, standalone: bool = False
) -> list[str]:
    """The lines to type for a job `body` (the whole object), with comments that say where.

    Args:
        body: The job.
        nodes: How many machines there are; absent: as many as the job has pods at most.
        host: The first machine's name, by which the others reach it.
        standalone: One line for one machine, which meets nobody.

    Raises:
        ConvertError: the operator would not accept the job, or it may not have that size.
    """
    spec = check(body)
    metadata = body.get("metadata") or {}
    name = fitting_name(str(metadata.get("name") or metadata.get("generateName") or "job"))
    number = spec.sizes()[-1] if nodes is None else nodes
    if standalone or spec.sizes() == (1,):
        return [f"# {name} on one machine", _alone(JobLine(spec, ROLE_MASTER))]
    if number not in spec.sizes():
        raise ConvertError(f"--nodes {number}: the job may have {_sizes(spec)}: write one of these")
    place = f"{host}:{MASTER_PORT}"
    lines = [f"# {name} on {number} machines: one line on each. They wait for each other at {place}."]
    for index in range(number):
        role = ROLE_WORKER if index else ROLE_MASTER
        lines.append(f"# machine {index + 1}" + ("" if index else f", which the others reach as {host}"))
        lines.append(_meeting(JobLine(spec, role), spec, name, number, host, index))
    return lines


def _sizes(spec: JobSpec) -> str:
    sizes = spec.sizes()
    is_range = sizes == tuple(range(sizes[0], sizes[-1] + 1)) and len(sizes) > 2
    return f"{sizes[0]} to {sizes[-1]} machines" if is_range else f"{', '.join(map(str, sizes))} machines"


def _alone(line: JobLine) -> str:
    here = f"localhost:{MASTER_PORT}"
    place = Place("1", here, "localhost", str(MASTER_PORT), "alone", "1", "is_host=1")
    return _typed(line, line.settings(place), line.alone(), 0)


def _meeting(line: JobLine, spec: JobSpec, name: str, number: int, host: str, index: int) -> str:
    fewest = spec.sizes()[0]
    nnodes = f"{fewest}:{number}" if fewest < number else str(number)
    conf = f"is_host={int(index == 0)}"
    place = Place(nnodes, f"{host}:{MASTER_PORT}", host, str(MASTER_PORT), name, str(number), conf)
    return _typed(line, line.settings(place), line.words(place), index)


def _typed(line: JobLine, settings: Mapping[str, str], words: list[str], index: int) -> str:
    """The line with its variables before it; one whose value is not in the manifest must be set already."""
    own = {one.name: line.quoted(one.value) for one in line.variables if not one.missing}
    ranked = {one: value.replace(f"${{{ENV_POD_RANK}}}", str(index)) for one, value in own.items()}
    given = [f"{variable}={value}" for variable, value in {**settings, **ranked}.items()]
    folder = [f"cd {line.quoted(line.folder)} &&"] if line.folder else []
    if any("${" in word for word in words):
        # The shell puts values into the words before it sets variables that stand before a command.
        given = [f"export {' '.join(given)} &&"]
    missing = [f"# {one.name} was {one.missing}: export it first\n" for one in line.variables if one.missing]
    return "".join(missing) + " ".join([*folder, *given, *words])
