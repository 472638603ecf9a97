"""From a command line of Run:ai, as printed in tutorials, to an ElasticPyTorchJob.

Both of its clients are read: `runai submit-dist pytorch` (v1) and `runai training pytorch submit` (v2). There
`--workers` counts pods beside the master, `--min-replicas` and `--max-replicas` all pods. The words after `--` are
arguments for the image's own command, unless `--command` is given.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from elastic_api.job import CleanPodPolicy
from elastic_client.convert import manifest, run, volumes
from elastic_client.convert.converted import Converted, ConvertError, Report
from elastic_client.convert.launch import Program, program_of
from elastic_client.convert.runai_line import MANY, ONE_POD, Line, read
from elastic_client.convert.volumes import Mounted

PROJECT = "a namespace is what a project is: --namespace, and a GPUQuotaPolicy for it"
NODES = "write spec.template.spec.nodeSelector or affinity for nodes of that kind"
PART = "parts of a GPU are not supported: ask for whole ones by --gpu"
TEMPLATE = "write it into the manifest's spec.template"
WATCH = "the client does not attach: kubectl elastic logs -f"
REASONS = {
    **dict.fromkeys(("project", "template"), PROJECT),
    **dict.fromkeys(("node-pools", "node-pool", "node-type", "preferred-pod-topology-key"), NODES),
    "required-pod-topology-key": NODES,
    **dict.fromkeys(
        ("gpu-memory", "gpu-memory-request", "gpu-memory-limit", "gpu-portion-request", "gpu-portion-limit"), PART
    ),
    **dict.fromkeys(("gpu-request-type", "mig-profile"), PART),
    **dict.fromkeys(("attach", "stdin", "tty", "interactive"), WATCH),
    **dict.fromkeys(("port", "service-type", "address", "external-url"), "training pods serve nothing to the outside"),
    **dict.fromkeys(("loglevel", "debug", "quiet", "verbose"), "it is about the client's own output"),
    **dict.fromkeys(("config-file", "config-path", "wait-for-submit", "pod-running-timeout"), "it is about the client"),
    "pvc-new": "no claim is made: make it, and mount it by --pvc-exists claimname=CLAIM,path=PATH",
    "new-pvc": "no claim is made: make it, and mount it by --existing-pvc claimname=CLAIM,path=PATH",
    "git-sync": "nothing is cloned: bring the code by the image or a volume",
    "s3": "nothing is copied from S3: let the script read it, or mount a claim",
    "run-as-user": "write runAsUser and runAsGroup into spec.template.spec.securityContext",
    "preemptible": "the default; spec.preemptible",
}
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def from_runai(words: Sequence[str], *, image_command: str = "", namespace: str = "") -> Converted:
    """The job of a command line.

    Args:
        words: The line split into words, with `runai` or without it, `--` included.
        image_command: The command that the image itself has, as `docker inspect` shows ENTRYPOINT and CMD.
        namespace: The job's namespace; Run:ai calls it a project.

    Raises:
        ConvertError: the line does not submit a job, has no command, or has an impossible value.
    """
    report, line = Report(), read(words)
    _lose_twice(line, report)
    image = line.last("image")
    if not image:
        raise ConvertError(run.NO_IMAGE)
    program = _program(line, image_command, report)
    program.name_dropped(report, "torchrun")
    gpus = run.whole_gpus(line.last("gpu"), "--gpu")
    fewest, most = _sizes(line, report)
    report.notes.insert(0, manifest.counted(fewest, most, gpus))
    run.note_alone(program, most, report)
    metadata = _metadata(line, namespace, program, report)
    spec = {
        **manifest.sizes(fewest, most),
        "nprocPerNode": None if program.nproc == "auto" else program.nproc,
        "template": _template(line, image, program, gpus),
        "recovery": _recovery(line, report),
        "cleanPodPolicy": _clean_pods(line),
        "ttlSecondsAfterFinished": _seconds(line.last("auto-deletion-time-after-completion")),
    }
    for flag, _, typed in line.flags:
        report.lose(typed, REASONS.get(flag, "nothing is known here by that name"))
    return report.converted(manifest.job(metadata, spec))


def _lose_twice(line: Line, report: Report) -> None:
    """Report flags that are repeated although only the last one counts."""
    for number, (name, _, typed) in enumerate(line.flags):
        if name not in MANY and any(later == name for later, _, _ in line.flags[number + 1 :]):
            report.lose(typed, "it stands again later, and the last one counts")


def _metadata(line: Line, namespace: str, program: Program, report: Report) -> dict[str, str]:
    """The name and the namespace. Names there may have letters that pods' names may not have."""
    typed, prefix = line.last("name") or line.name, line.last("job-name-prefix")
    if line.name and typed != line.name:
        report.lose(line.name, f"--name {typed} is the name")
    if prefix and typed:
        report.lose(f"--job-name-prefix {prefix}", f"the name is {typed}")
    fitting = manifest.fitting_name(typed)
    if typed and fitting != typed:
        report.keep(f"--name {typed}", f"metadata.name: {manifest.check_name(fitting, f'--name {typed}')}")
    metadata = run.metadata_of(fitting, namespace, program, report)
    if prefix and not typed:
        metadata["generateName"] = f"{manifest.fitting_name(prefix)}-"
    return metadata


def _program(line: Line, image_command: str, report: Report) -> Program:
    replaces = line.has("command")
    if image_command and not (replaces and line.command):
        return program_of([*run.words_of_image(image_command, report), *line.command])
    if not line.command:
        raise ConvertError(f"{' '.join(line.start)}: {run.NO_COMMAND}")
    if not replaces:
        if line.command[0].startswith("-"):
            raise ConvertError(
                f"-- {line.command[0]}: without --command these are arguments for the image's own command: say that"
                f" one, {run.IMAGE_COMMAND}"
            )
        report.lose("ENTRYPOINT", "the image's own command, which Run:ai starts with these words, is not used")
    return program_of(line.command)


def _sizes(line: Line, report: Report) -> tuple[int, int]:
    """The fewest and most pods. `--workers` leaves the master out, the other two count it."""
    workers, least, most = (line.last(name) for name in ("workers", "min-replicas", "max-replicas"))
    masters = 0 if line.has("no-master") else 1
    pods = 1 if line.start in ONE_POD or not workers else max(1, masters + _number(workers, "--workers"))
    if not masters:
        report.keep("--no-master", "no pod more than --workers says; one of them is the master, and trains as they do")
    fewest = _number(least, "--min-replicas") if least else pods
    largest = _number(most, "--max-replicas") if most else pods
    if workers and line.start in ONE_POD:
        report.lose(f"--workers {workers}", f"`runai {' '.join(line.start)}` makes one pod")
    elif workers and least and most:
        size = manifest.pods(fewest, largest)
        report.lose(f"--workers {workers}", f"--min-replicas and --max-replicas say the size, {size}")
    elif workers:
        report.keep(
            f"--workers {workers}", f"{manifest.pods(pods, pods)}{': Run:ai adds the master' if masters else ''}"
        )
    if not (least or most):
        return pods, pods
    report.note("--min-replicas and --max-replicas count the master there, too.")
    return run.pair(f"--min-replicas {fewest} --max-replicas {largest}", fewest, largest)


def _number(text: str, flag: str, what: str = "a whole number of pods") -> int:
    if not text.isdecimal():
        raise ConvertError(f"{flag} {text}: write {what}")
    return int(text)


def _template(line: Line, image: str, program: Program, gpus: int) -> dict[str, Any]:
    more = dict(_pair(text, "--extended-resource") for text in _split(line.all("extended-resource")))
    parts = {
        "imagePullPolicy": "Always" if line.has("always-pull-image") else line.last("image-pull-policy"),
        "workingDir": line.last("working-dir"),
        "env": run.variables(line.all("environment"), "--environment"),
        "resources": run.resources(
            gpus,
            line.last("cpu"),
            line.last("memory"),
            cpu_limit=line.last("cpu-limit"),
            memory_limit=line.last("memory-limit"),
            more=more,
        ),
        "securityContext": _of_container(line),
    }
    spec = {**run.pod(image, program, parts, _mounts(line), large_shm=line.has("large-shm")), **_of_pod(line)}
    labels = dict(_pair(text, "--label") for text in _split(line.all("label")))
    annotations = dict(_pair(text, "--annotation") for text in _split(line.all("annotation")))
    metadata = {key: value for key, value in (("labels", labels), ("annotations", annotations)) if value}
    return {**({"metadata": metadata} if metadata else {}), "spec": spec}


def _of_container(line: Line) -> dict[str, Any]:
    capabilities = _split(line.all("add-capability"))
    escalation = {"allowPrivilegeEscalation": True} if line.has("allow-privilege-escalation") else {}
    denied = {"allowPrivilegeEscalation": False} if line.has("prevent-privilege-escalation") else {}
    return {**escalation, **denied, **({"capabilities": {"add": capabilities}} if capabilities else {})}


def _of_pod(line: Line) -> dict[str, Any]:
    security = {
        field: _number(text, f"--{flag}", f"a {kind}'s number")
        for field, flag, kind in (("runAsUser", "run-as-uid", "user"), ("runAsGroup", "run-as-gid", "group"))
        if (text := line.last(flag))
    }
    tolerations = [_toleration(text) for text in line.all("toleration")]
    return {
        **({"hostNetwork": True} if line.has("host-network") else {}),
        **({"hostIPC": True} if line.has("host-ipc") else {}),
        **({"securityContext": security} if security else {}),
        **({"tolerations": tolerations} if tolerations else {}),
    }


def _toleration(text: str) -> dict[str, Any]:
    parts = dict(_pair(part, "--toleration") for part in text.split(","))
    seconds = parts.pop("seconds", "")
    if unknown := parts.keys() - {"operator", "key", "value", "effect"}:
        raise ConvertError(f"--toleration {text}: {sorted(unknown)[0]}: write operator, key, value, effect or seconds")
    return {
        **parts,
        **({"tolerationSeconds": _number(seconds, "--toleration seconds", "a whole number")} if seconds else {}),
    }


def _mounts(line: Line) -> list[Mounted]:
    return [
        *(volumes.claim(text) for text in line.all("pvc")),
        *(volumes.existing_claim(text, "--existing-pvc") for text in line.all("pvc-exists")),
        *(volumes.volume(text) for text in line.all("volume")),
        *(volumes.host_path(text) for text in line.all("host-path")),
        *(volumes.nfs(text) for text in line.all("nfs")),
        *(volumes.configmap(text) for text in line.all("configmap-map-volume")),
    ]


def _recovery(line: Line, report: Report) -> dict[str, int] | None:
    limit = line.last("backoff-limit")
    if not limit:
        return None
    report.keep(f"--backoff-limit {limit}", f"spec.recovery.maxRestarts: {limit}; lost pods do not count")
    return {"maxRestarts": _number(limit, "--backoff-limit", "a whole number")}


def _clean_pods(line: Line) -> str | None:
    policy = line.last("clean-pod-policy")
    policies = [choice.value for choice in CleanPodPolicy]
    if policy and policy not in policies:
        raise ConvertError(f"--clean-pod-policy {policy}: write one of {', '.join(policies)}")
    return policy or None


def _seconds(text: str) -> int | None:
    """The seconds of a duration such as 2h, 30m or 1h5s."""
    if not text:
        return None
    found = _DURATION.fullmatch(text)
    if not found:
        raise ConvertError(f"--auto-deletion-time-after-completion {text}: write a duration such as 5s, 2m or 3h")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return (hours * 60 + minutes) * 60 + seconds


def _split(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in text.split(",") if part]


def _pair(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConvertError(f"{flag} {text}: write NAME=VALUE")
    return name, value
