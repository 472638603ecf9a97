"""From a batch script of Slurm that trains on several nodes to an ElasticPyTorchJob.

A node of the allocation becomes a pod. Lines that only find nodes and addresses are removed; each is named. The rest
becomes `env` and `args` if it needs no shell. Otherwise it stays as written, here-documents and variables included, as
a text for bash.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elastic_client.convert import manifest, slurm_options
from elastic_client.convert.converted import Converted, ConvertError, Report
from elastic_client.convert.sbatch_body import Body, read_body
from elastic_client.convert.slurm_options import Option

NODE_SELECTOR = "write spec.template.spec.nodeSelector or tolerations for nodes of that kind"
LOGS = "the output is in the pods' logs: kubectl elastic logs"
TEAM = "a GPUQuotaPolicy says what a namespace may use (docs/quotas.md), spec.priorityClassName what goes first"
OTHER_RESOURCES = "only GPUs are known here: write other resources into the container's limits"
NO_STEPS = "a pod has no steps and tasks: torchrun starts its processes"
REASONS = {
    **dict.fromkeys(("partition", "constraint", "nodelist", "exclude", "prefer", "gres-flags"), NODE_SELECTOR),
    **dict.fromkeys(("output", "error", "open-mode", "input", "label", "unbuffered"), LOGS),
    **dict.fromkeys(("account", "qos", "reservation", "nice", "wckey", "priority"), TEAM),
    **dict.fromkeys(("exclusive", "oversubscribe"), "a pod has what it asks for: GPUs, cpu and memory"),
    **dict.fromkeys(("mail-type", "mail-user"), "nobody is sent mail: kubectl elastic wait, or an alert"),
    **dict.fromkeys(("ntasks-per-node", "ntasks", "ntasks-per-gpu", "gpus-per-task"), NO_STEPS),
    **dict.fromkeys(("no-kill", "kill-on-bad-exit", "wait"), "the operator replaces a pod that is lost"),
    "array": "each job is a manifest of its own",
    "dependency": "no job waits for the end of another one",
    "no-requeue": "write spec.recovery.maxFailuresWithoutProgress: 0 for a job that ends at its first failure",
    "container-mounts": "write spec.template.spec.volumes, and volumeMounts of the container (docs/data.md)",
    "export": "only the variables that it sets by name are kept; those of a login shell are not there",
}
OTHER = "there is no such thing in a job, or nothing is known here by that name"
SIZE = ("nodes", "ntasks", "ntasks-per-node")
RESOURCES = ("gpus-per-node", "gpus-per-task", "gpus", "gres", "cpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu")
CONTAINER = ("container-image", "container-workdir", "container-mounts")


@dataclass(slots=True)
class Options:
    """The unread options of a script, by name; of a repeated option the last one counts."""

    report: Report
    found: dict[str, tuple[Option, str]] = field(default_factory=dict)

    def add(self, option: Option, where: str) -> None:
        """Add an option; an earlier one of that name is reported as not used."""
        if option.name in self.found:
            earlier, at = self.found[option.name]
            self.report.lose(f"{at} {earlier.text}", "it stands twice, and the last one counts")
        self.found[option.name] = (option, where)

    def take(self, name: str) -> str:
        """The value of an option, which counts as read; "" if it is not there."""
        return self.found.pop(name)[0].value if name in self.found else ""

    def keep(self, name: str, became: str) -> None:
        """Report an option's form in the job, and count it as read."""
        if name in self.found:
            option, where = self.found.pop(name)
            self.report.keep(f"{where} {option.text}", became)

    def lose(self, name: str, reason: str) -> None:
        """Report why an option is not kept, and count it as read."""
        if name in self.found:
            option, where = self.found.pop(name)
            self.report.lose(f"{where} {option.text}", reason)

    def value(self, name: str) -> str:
        """The value of an option, which does not count as read; "" if it is not there."""
        return self.found[name][0].value if name in self.found else ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The resources of one node for the job: a pod's share. 0 and "" if the script has no value."""

    fewest: int
    most: int
    tasks: int
    gpus: int
    cpus: int
    mebibytes: int

    def resources(self) -> dict[str, Any]:
        """The main container's resources: memory is a limit, as in Slurm; GPUs must be a limit."""
        memory = _amount(self.mebibytes) if self.mebibytes else None
        requests = {"cpu": self.cpus or None, "memory": memory}
        limits = {"memory": memory, manifest.GPU: self.gpus or None}
        named: dict[str, dict[str, Any]] = {"requests": requests, "limits": limits}
        parts = {kind: {name: v for name, v in amounts.items() if v} for kind, amounts in named.items()}
        return {kind: amounts for kind, amounts in parts.items() if amounts}


def from_sbatch(script: str, *, image: str = "", args: Sequence[str] = (), name: str = "") -> Converted:
    """The job that a batch script describes.

    Args:
        script: The text of the script.
        image: The image with python, torch and the code. Needed unless the script names one for pyxis.
        args: The words after the script's name in the call of sbatch: its `$1`, `$2` and so on.
        name: The job's name, instead of the script's --job-name.

    Raises:
        ConvertError: no image is named, an option has a value that Slurm would not accept either, or the script does
        not start exactly one training: none, several, or one in a loop over nodes.
    """
    report = Report()
    options = _options(script, report)
    body = read_body(script, report, args=args)
    _add_step(body, options)
    image = _image(image, options)
    shape = _shape(options)
    report.note(manifest.counted(shape.fewest, shape.most, shape.gpus))
    metadata = _metadata(name, options, report, body)
    program, env = body.finish(shape, report, _exported(options))
    report.note("Files come from the image or from volumes: a pod does not see the folder that sbatch was called in.")
    parts = {"workingDir": _folder(options), "env": env, "resources": shape.resources()}
    pod = {"containers": [manifest.container(image, program.command, program.args, parts=parts)]}
    spec = {
        **manifest.sizes(shape.fewest, shape.most),
        "nprocPerNode": None if program.nproc == "auto" else program.nproc,
        "template": {"spec": pod},
        "elasticity": _grace(options),
        "activeDeadlineSeconds": _deadline(options),
    }
    options.keep("requeue", "always so: the operator starts the job over after a failure or a loss")
    for left in list(options.found):
        options.lose(left, REASONS.get(left, OTHER))
    report.kept, report.lost = _in_order(report.kept), _in_order(report.lost)
    return report.converted(manifest.job(metadata, spec))


def _options(script: str, report: Report) -> Options:
    options = Options(report)
    for number, text, is_read in slurm_options.directives(script):
        where = f"line {number}: #SBATCH"
        words = slurm_options.words_of(text)
        if not is_read:
            report.lose(f"{where} {text}", "it stands after the first command, where sbatch does not read it either")
            continue
        found, used = slurm_options.read(words)
        for option in found:
            options.add(option, where)
        if used < len(words):
            report.lose(f"{where} {' '.join(words[used:])}", OTHER)
    return options


def _add_step(body: Body, options: Options) -> None:
    """Add the options of srun that the script's lack. The others have no meaning without steps."""
    for option in body.step_options:
        where = f"line {body.launch_line}: srun"
        is_new = option.name not in options.found
        if is_new and option.name in (*SIZE, *RESOURCES, *CONTAINER, "chdir", "export"):
            options.add(option, where)
        else:
            options.report.lose(f"{where} {option.text}", REASONS.get(option.name, NO_STEPS))


def _shape(options: Options) -> Shape:
    nodes, ntasks, per_node = (options.value(name) for name in SIZE)
    tasks = slurm_options.whole(per_node, "--ntasks-per-node") if per_node else 0
    all_tasks = slurm_options.whole(ntasks, "--ntasks") if ntasks else 0
    if nodes:
        fewest, most = slurm_options.nodes(nodes, "--nodes")
        tasks = tasks or max(1, all_tasks // most)
    else:
        fewest = most = -(-all_tasks // (tasks or 1)) or 1
        tasks = tasks or 1
    gpus = _gpus(options, most, tasks)
    per_task = options.value("cpus-per-task")
    cpus = slurm_options.whole(per_task or "1", "--cpus-per-task") * tasks
    shape = Shape(fewest, most, tasks, gpus, cpus if per_task else 0, _memory(options, cpus, gpus))
    options.keep("cpus-per-task", f"cpu: {cpus} in each pod")
    size = f"spec.minReplicas: {fewest}" + (
        f", spec.maxReplicas: {most}; it may change while the job runs" if fewest < most else " and spec.maxReplicas"
    )
    options.keep("nodes", size)
    if all_tasks:
        options.keep("ntasks", f"{most} pods with {tasks} tasks each" if tasks > 1 else f"{most} pods")
    options.keep("ntasks-per-node", "one pod for each node" if tasks == 1 else f"{tasks} tasks in each pod")
    return shape


def _gpus(options: Options, nodes: int, tasks: int) -> int:
    """The GPUs of a node. A job chooses the kind of GPU by nodes' labels."""
    number = 0
    for name, factor, divisor in (
        ("gpus-per-node", 1, 1),
        ("gres", 1, 1),
        ("gpus-per-task", tasks, 1),
        ("gpus", 1, nodes),
    ):
        text = options.value(name)
        if not text:
            continue
        if name == "gres":
            text, others = slurm_options.generic_resources(text)
            if others:
                where = f"{options.found[name][1]} {options.found[name][0].text}"
                options.report.lose(f"{where}: {','.join(others)}", OTHER_RESOURCES)
            if not text:
                options.take(name)
                continue
        amount, kind = slurm_options.gpus(text, f"--{name}")
        if number:
            options.lose(name, f"another option says {number} GPUs for each node")
            continue
        number = -(-amount * factor // divisor)
        where = f"{options.found[name][1]} {options.found[name][0].text}"
        if kind:
            options.report.lose(where, f"the kind {kind}: {NODE_SELECTOR}")
        options.keep(name, f"{manifest.GPU}: {number} in each pod")
    return number


def _memory(options: Options, cpus: int, gpus: int) -> int:
    """The memory of a node in mebibytes; 0 if the script has no value, or wants all memory."""
    for name, factor in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus or 1)):
        text = options.value(name)
        if not text:
            continue
        amount = slurm_options.mebibytes(text, f"--{name}") * factor
        if not amount:
            options.lose(name, "all memory of a node cannot be asked for: write an amount")
            return 0
        options.keep(name, f"memory: {_amount(amount)} in each pod")
        return amount
    return 0


def _amount(mebibytes: int) -> str:
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"


def _in_order(lines: list[str]) -> list[str]:
    """The lines of a report by the lines of the script; lines about no line of the script are last."""
    return sorted(lines, key=lambda line: int(found[1]) if (found := re.match(r"line (\d+):", line)) else sys.maxsize)


def _image(image: str, options: Options) -> str:
    named = options.value("container-image")
    if image:
        options.lose("container-image", f"--image {image} is used")
        return image
    if named.endswith(".sqsh"):
        raise ConvertError(f"--container-image={named}: a file cannot be an image here: write --image")
    if not named:
        raise ConvertError("--image: a script of Slurm names none: write the image with python, torch and your code")
    image = named.removeprefix("docker://").replace("#", "/")
    options.keep("container-image", f"image: {image}")
    return image


def _metadata(name: str, options: Options, report: Report, body: Body) -> dict[str, str]:
    written = options.value("job-name")
    if name or not written:
        options.lose("job-name", f"--name {name} is used")
        return manifest.metadata_for(name, body.script, report)
    fitting = manifest.check_name(manifest.fitting_name(written), "--job-name")
    options.keep("job-name", f"metadata.name: {fitting}")
    return {"name": fitting}


def _folder(options: Options) -> str:
    name = "container-workdir" if "container-workdir" in options.found else "chdir"
    folder = options.value(name)
    if not folder.startswith("/"):
        options.lose(name, "write an absolute path of the image")
        return ""
    options.keep(name, f"workingDir: {folder}")
    return folder


def _exported(options: Options) -> dict[str, str]:
    """Variables that --export sets."""
    found = dict(pair.split("=", 1) for pair in options.value("export").split(",") if "=" in pair)
    if found and options.value("export").split(",")[0] not in ("ALL", "NONE", "NIL"):
        options.keep("export", "env")
    return found


def _grace(options: Options) -> dict[str, int] | None:
    """The number of seconds before the end at which the script wants a signal."""
    text, _, at = options.value("signal").partition("@")
    if not at.isdecimal():
        options.lose("signal", "a pod that is to leave gets SIGTERM, spec.elasticity.gracePeriodSeconds before its end")
        return None
    seconds = min(int(at), 86_400)
    options.keep(
        "signal", f"spec.elasticity.gracePeriodSeconds: {seconds}; the signal is SIGTERM, not {text or 'USR1'}"
    )
    return {"gracePeriodSeconds": seconds}


def _deadline(options: Options) -> int | None:
    text = options.value("time")
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        options.keep("time", "no spec.activeDeadlineSeconds: no limit")
        return None
    if not text:
        return None
    seconds = slurm_options.seconds(text, "--time")
    if not seconds:
        options.keep("time", "no spec.activeDeadlineSeconds: no limit")
        return None
    options.keep("time", f"spec.activeDeadlineSeconds: {seconds}; only time with pods on nodes counts")
    return seconds
