"""Converts an ElasticPyTorchJob to a self-contained batch script for Slurm.

A pod becomes a node. The script's head names the features that Slurm lacks, and the parts of the manifest that have no
equivalent there.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elastic_api.job import JobSpec
from elastic_api.template import gpus_of, main_container, requests_of
from elastic_client.code.objects import MOUNT, code_of
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.job_line import PER_POD, JobLine, Place, Variable, left_out, on_one_line
from elastic_client.convert.manifest import check, fitting_name
from elastic_worker.contract import ENV_JOB_NAME, ENV_JOB_UID, ENV_POD_RANK, ENV_ROLE, ROLE_MASTER, ROLE_WORKER

WIDTH = 118
MEBIBYTE = 1024**2
CONTAINER = ("name", "image", "command", "args", "env", "resources", "workingDir", "imagePullPolicy")
POD = ("containers", "restartPolicy")
NODES = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "nodeName")
HEAD_NODE = 'head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
PORT = "port=$((10000 + SLURM_JOB_ID % 20000))"
MOST_SIGNAL_SECONDS = 65_535
"""The largest number of seconds that Slurm accepts in --signal."""
OWN = ("head_node", "port")
"""The variables that the script itself sets."""
SLURM_S = ("SLURM", "SBATCH_", "SRUN_")
"""The prefixes of variables that belong to Slurm or change srun's behaviour."""
RUN_ID = '"$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"'
BACK_INTO_THE_QUEUE = """\
# Before the time limit of the partition the job goes back into the queue, and on from its last checkpoint.
back_into_the_queue() {
  scontrol requeue "$SLURM_JOB_ID"
  wait
}
trap back_into_the_queue USR1"""


def to_sbatch(body: Mapping[str, Any]) -> str:
    """The script for a job `body` (the whole object). Raises ConvertError if the operator would not accept the job."""
    spec = check(body)
    metadata = body.get("metadata") or {}
    name = fitting_name(str(metadata.get("name") or metadata.get("generateName") or "job"))
    line = JobLine(spec, ROLE_WORKER if spec.max_replicas > 1 else ROLE_MASTER)
    parts = [
        "#!/bin/bash",
        f"# {name}: an ElasticPyTorchJob as a batch script, made by `kubectl elastic export sbatch`.",
        *(f"#SBATCH {option}" for option in _options(name, spec)),
        "#",
        *_head(spec, line),
        "",
        "# All meet at the first node.",
        HEAD_NODE,
        PORT,
        *(f"export {variable}={value}" for variable, value in line.settings(_place(spec, name)).items()),
        *(_export(variable) for variable in _exported(line) if not variable.is_per_pod),
        *([f"cd {line.quoted(line.folder)} || exit"] if line.folder else []),
        "",
        *_start(spec, line, name),
    ]
    return "\n".join(parts) + "\n"


def is_elastic(spec: JobSpec) -> bool:
    """Whether the job may have more than one size."""
    return len(spec.sizes()) > 1


def _options(name: str, spec: JobSpec) -> Iterator[str]:
    fewest, most = spec.minimum, spec.sizes()[-1]
    yield f"--job-name={name}"
    yield f"--nodes={fewest}-{most}" if fewest < most else f"--nodes={most}"
    asked = _asked(spec)
    if gpus := max(gpus_of(spec.template_of(role)) for role in _roles(spec)):
        yield f"--gpus-per-node={gpus}"
    if cpus := _cpus(spec):
        yield f"--cpus-per-task={cpus}"
    if memory := max(amounts.get("memory", 0) for amounts in asked):
        yield f"--mem={-(-memory // MEBIBYTE)}M"
    yield from _endings(spec)


def _asked(spec: JobSpec) -> list[dict[str, int]]:
    return [requests_of(spec.template_of(role)) for role in _roles(spec)]


def _cpus(spec: JobSpec) -> int:
    """The CPUs of a node; 0 if the manifest requests none."""
    return -(-max(amounts.get("cpu", 0) for amounts in _asked(spec)) // 1000)


def _endings(spec: JobSpec) -> Iterator[str]:
    """The end of the job, and its restarts."""
    grace = min(max(1, spec.elasticity.grace_period_seconds), MOST_SIGNAL_SECONDS)
    yield "--requeue"
    yield "--open-mode=append"
    if is_elastic(spec):
        yield "--no-kill"
    if spec.active_deadline_seconds:
        yield f"--time={-(-spec.active_deadline_seconds // 60)}"
        yield f"--signal=TERM@{grace}"
    else:
        yield f"--signal=B:USR1@{grace}"
    if spec.suspend:
        yield "--hold"


def _head(spec: JobSpec, line: JobLine) -> Iterator[str]:
    """Comments on the differences under Slurm."""
    yield "# What Slurm does not do:"
    for text in dict.fromkeys([*_differences(spec), *_not_here(spec), *_not_set(line)]):
        yield from textwrap.wrap(
            on_one_line(text), WIDTH, initial_indent="# * ", subsequent_indent="#   ", break_on_hyphens=False
        )


def _not_set(line: JobLine) -> Iterator[str]:
    """Variables of the job that the script leaves as they are."""
    if names := [variable.name for variable in line.variables if variable.name.startswith(SLURM_S)]:
        yield f"Set {', '.join(names)} as the job does: Slurm has its own."
    if names := line.not_set():
        yield f"Set {', '.join(names)}, which only the operator does: the texts that name them stay as they are."


def _differences(spec: JobSpec) -> Iterator[str]:
    if is_elastic(spec):
        yield (
            "Grow: Slurm gives a running job no more nodes. It starts with as many as are free, up to the most, and can"
            " only shrink: the others train on half a minute after a node is lost, or, where its connections stay open,"
            " after a collective has timed out. More nodes come with the next start, as after `scontrol requeue ID`."
        )
    else:
        yield "Replace a node: when one is lost, the job starts again, from the queue."
    yield "Keep the job when its first node is lost: it starts again, from the queue."
    yield "Guarantee, lend and reclaim GPUs: partitions, accounts and --qos say who gets nodes."
    yield "Count failures: a job that fails is not started again; one that lost a node always is."
    if (grace := spec.elasticity.grace_period_seconds) > MOST_SIGNAL_SECONDS:
        yield f"Tell the job {grace} s before its end: {MOST_SIGNAL_SECONDS} s are the most."
    if len(spec.sizes()) > 1 and spec.sizes() != tuple(range(spec.min_replicas, spec.max_replicas + 1)):
        yield f"Keep to the sizes {', '.join(map(str, spec.sizes()))}: each between the first and the last may come."
    if spec.is_elastic:
        yield "Elastic mode: torchrun starts the script here. The launcher runs under Slurm, too (docs/slurm.md)."


def _not_here(spec: JobSpec) -> Iterator[str]:
    """Parts of the manifest that have no equivalent in the script."""
    for role in _roles(spec):
        pod = spec.template_of(role)["spec"]
        main = main_container(spec.template_of(role))
        yield f"The image {main['image']}: python, torch and all that the script needs must be on the nodes."
        for mount in main.get("volumeMounts") or []:
            if mount["mountPath"] == MOUNT and (name := code_of(spec.template_of(role))):
                yield f"The code at {MOUNT} (ConfigMap {name}): put the folder that it was made of there on all nodes."
                continue
            source: dict[str, Any] = next((v for v in pod.get("volumes") or [] if v["name"] == mount["name"]), {})
            yield f"The volume at {mount['mountPath']} ({_source(source)}): make it a folder that all nodes see."
        if fields := left_out(main, (*CONTAINER, "volumeMounts")):
            yield f"Of the container: {', '.join(fields)}."
        if nodes := left_out(pod, [field for field in pod if field not in NODES]):
            yield f"Of the pod: {', '.join(nodes)}; --partition, --constraint or --exclude choose nodes."
        if fields := left_out(pod, (*POD, *NODES, "volumes")):
            yield f"Of the pod: {', '.join(fields)}."
        if others := [container["name"] for container in pod["containers"] if container is not main]:
            yield f"The containers {', '.join(others)}."
    if len(_roles(spec)) > 1:
        yield "A template of the master's own: all nodes run the workers', and ask for what the larger of both has."
    written = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    written["elasticity"] = left_out(written.get("elasticity") or {}, ["gracePeriodSeconds"])
    if fields := left_out(written, SPEC):
        yield f"Of the job: {', '.join(fields)}."


SPEC = (
    "minReplicas",
    "maxReplicas",
    "allowedReplicas",
    "replicaStep",
    "nprocPerNode",
    "template",
    "master",
    "worker",
    "activeDeadlineSeconds",
    "suspend",
)
"""Fields of a job that the script has or mentions."""


def _roles(spec: JobSpec) -> tuple[str, ...]:
    """The roles whose templates differ."""
    if spec.max_replicas == 1:
        return (ROLE_MASTER,)
    return (
        (ROLE_WORKER,) if spec.template_of(ROLE_MASTER) == spec.template_of(ROLE_WORKER) else (ROLE_WORKER, ROLE_MASTER)
    )


def _source(volume: Mapping[str, Any]) -> str:
    kind = next((key for key in volume if key != "name"), "no volume")
    named = volume.get(kind) or {}
    value = next((str(v) for v in named.values() if isinstance(v, str)), "") if isinstance(named, Mapping) else ""
    return f"{kind} {value}".strip()


def _exported(line: JobLine) -> list[Variable]:
    """The variables that the script sets. Raises ConvertError."""
    for variable in line.variables:
        if variable.name in OWN:
            raise ConvertError(f"env {variable.name}: the script has a variable of that name: take another one")
    return [variable for variable in line.variables if not variable.name.startswith(SLURM_S)]


def _export(variable: Variable) -> str:
    if variable.missing:
        missing = re.sub(r'[\\"$`}]', r"\\\g<0>", variable.missing)
        return f': "${{{variable.name}:?was {missing}: export it before sbatch}}"'
    return f"export {variable.name}={variable.value}"


def _place(spec: JobSpec, name: str) -> Place:
    size = '"$SLURM_JOB_NUM_NODES"'
    nnodes = f'"{spec.minimum}:$SLURM_JOB_NUM_NODES"' if is_elastic(spec) else size
    own = {ENV_JOB_NAME: name, ENV_JOB_UID: '"$SLURM_JOB_ID"'}
    return Place(nnodes, '"$head_node:$port"', '"$head_node"', '"$port"', RUN_ID, size, own=own)


def _start(spec: JobSpec, line: JobLine, name: str) -> Iterator[str]:
    """The command that trains. If the job has no time limit, the shell also waits for the partition's limit."""
    if not spec.active_deadline_seconds:
        yield BACK_INTO_THE_QUEUE
    step = [*_step(spec)]
    words = line.words(_place(spec, name))
    if any(map(line.mentions, PER_POD)):
        yield "# shellcheck disable=SC2016 # each node's own shell reads it"
        end = len(words) - line.words_per_pod()
        words = [*_on_node(line, words[end:]), *words[:end]]
    command = " \\\n  ".join(_grouped([*step, *words]))
    if spec.active_deadline_seconds:
        yield f"exec {command}"
    else:
        yield f"{command} &\nwait $!"


def _step(spec: JobSpec) -> Iterator[str]:
    """`srun` and its options.

    One task per node is set here only: with a range of nodes, sbatch reads it as the number of nodes. CPUs are set
    again, since srun inherits no --cpus-per-task from sbatch.
    """
    yield "srun"
    yield "--ntasks-per-node=1"
    if cpus := _cpus(spec):
        yield f"--cpus-per-task={cpus}"
    if is_elastic(spec):
        yield "--no-kill"
        yield "--kill-on-bad-exit=0"


def _on_node(line: JobLine, last: Sequence[str]) -> list[str]:
    """The words before a command that set the rank of its node, with the last words of the command."""
    settings = [f'export {ENV_POD_RANK}="$SLURM_NODEID"']
    if line.mentions(ENV_ROLE):
        settings.append(f"export {ENV_ROLE}={ROLE_WORKER}")
        settings.append(f'[ "$SLURM_NODEID" != 0 ] || export {ENV_ROLE}={ROLE_MASTER}')
    settings += [_export(variable) for variable in _exported(line) if variable.is_per_pod]
    return ["bash", "-c", shlex.quote("; ".join([*settings, " ".join(['exec "$@"', *last])])), "bash"]


def _grouped(words: list[str]) -> list[str]:
    """The words as lines: each of torchrun's flags alone, the words before and after these in one line each."""
    flags = [n for n, word in enumerate(words) if re.match(r"--[a-z-]+=", word)]
    start = next((n for n in flags if words[n].startswith("--nnodes=")), len(words))
    end = next((n for n in range(start, len(words)) if n not in flags), len(words))
    parts = [" ".join(words[:start]), *words[start:end], " ".join(words[end:])]
    return [part for part in parts if part]
