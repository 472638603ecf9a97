"""The ConfigMap of a folder of code, and the job that mounts it. Pure."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Mapping
from posixpath import normpath
from typing import Any, Final

from elastic_api.job import GROUP
from elastic_api.launch_line import line_of
from elastic_api.template import main_container
from elastic_client.code.folder import Code
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.manifest import check
from elastic_client.documents import CODE_ANNOTATION
from elastic_client.words import near

MOUNT: Final = "/code"
LABEL: Final = f"{GROUP}/code"
"""The label of these ConfigMaps: `kubectl get configmap -l elastic-pytorch.dev/code` lists them."""
APPLIED = f"{GROUP}/code-applied"
"""The annotation of a ConfigMap that `--dry-run` printed: the user who applies it must delete it."""
VOLUME = "code"
EXECUTABLE = 0o755
MOST_APPLIED = 260_000
"""The most characters of a manifest for `kubectl apply`, which keeps it in an annotation: the limit for all is 256 KiB.
"""
TEMPLATES = ((), ("master",), ("worker",))
"""The fields of a job's spec with templates of pods."""
_NAME = re.compile(r"code-[0-9a-f]{16}")
_UNSAFE = re.compile(r"[^-._a-zA-Z0-9]")


def name_of(code: Code) -> str:
    """The ConfigMap's name: equal code has an equal name, so jobs share the ConfigMap, and it is never overwritten."""
    return f"code-{code.digest[:16]}"


def config_map(code: Code, *, applied: bool = False) -> dict[str, Any]:
    """The ConfigMap. It is immutable: no edit reaches running jobs, and kubelets need not watch it.

    `applied`: it is created without this client, so no job may own it.
    """
    annotations = {CODE_ANNOTATION: str(code), **({APPLIED: "true"} if applied else {})}
    metadata = {"name": name_of(code), "labels": {LABEL: "true"}, "annotations": annotations}
    contents = {
        _key(number, file.path): base64.b64encode(file.content).decode() for number, file in enumerate(code.files)
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "binaryData": contents}


def is_applied(body: Mapping[str, Any]) -> bool:
    """Whether the ConfigMap was created without this client."""
    return APPLIED in (body["metadata"].get("annotations") or {})


def with_code(manifest: Mapping[str, Any], code: Code) -> dict[str, Any]:
    """The job with the code at /code in its pods, which is their working directory unless the job names another one.

    Raises:
        ConvertError: the operator would not accept the job, it mounts something else there, or it starts a script that
            the folder does not have.
    """
    check(manifest)
    job: dict[str, Any] = copy.deepcopy(dict(manifest))
    metadata = job["metadata"]
    metadata["annotations"] = {**(metadata.get("annotations") or {}), CODE_ANNOTATION: str(code)}
    for role in TEMPLATES:
        part = job["spec"]
        for step in role:
            part = part.get(step) or {}
        if part.get("template"):
            _mount(part["template"], code, ".".join(("spec", *role, "template")))
    check(job)
    return job


def code_of(template: Mapping[str, Any]) -> str:
    """The ConfigMap with the code of a template; "" where it has none."""
    at_code = [mount for mount in main_container(template).get("volumeMounts") or () if mount["mountPath"] == MOUNT]
    for volume in template["spec"].get("volumes") or ():
        name = str((volume.get("configMap") or {}).get("name") or "")
        if at_code and volume["name"] == at_code[0]["name"] and _NAME.fullmatch(name):
            return name
    return ""


def by_hand(code: Code) -> list[str]:
    """The note on the ConfigMap for a user who creates it without this client."""
    lines = [f"The ConfigMap {name_of(code)} stays when the job is deleted: delete it yourself."]
    if len(json.dumps(config_map(code))) > MOST_APPLIED:
        lines.append("The ConfigMap is too large for `kubectl apply`: use `kubectl apply --server-side`.")
    return lines


def _key(number: int, path: str) -> str:
    """A key for a path that Kubernetes accepts and users recognize."""
    return f"{number:03d}-{_UNSAFE.sub('_', path)[-200:]}"


def _items(code: Code) -> list[dict[str, Any]]:
    return [
        {"key": _key(number, file.path), "path": file.path, **({"mode": EXECUTABLE} if file.is_program else {})}
        for number, file in enumerate(code.files)
    ]


def _mount(template: dict[str, Any], code: Code, field: str) -> None:
    pod, main = template["spec"], main_container(template)
    mounts, volumes = main.setdefault("volumeMounts", []), pod.setdefault("volumes", [])
    for mount in mounts:
        if f"{normpath(mount['mountPath'])}/".startswith(f"{MOUNT}/"):
            message = (
                f"{mount['mountPath']} has the volume {mount['name']} already: mount that one elsewhere, as at /data"
            )
            raise ConvertError(f"--code: {field}: {message}")
    main.setdefault("workingDir", MOUNT)
    _check_script(main, code)
    name, taken = VOLUME, {volume["name"] for volume in volumes}
    while name in taken:
        name += "-of-job"
    volumes.append({"name": name, "configMap": {"name": name_of(code), "items": _items(code)}})
    mounts.append({"name": name, "mountPath": MOUNT, "readOnly": True})


def _check_script(main: Mapping[str, Any], code: Code) -> None:
    """Raise ConvertError if python would not find the script: the pods would report that only after their start."""
    line = line_of(main)
    program = list(line.program) if line else [] if main.get("command") else list(main.get("args") or [])
    if not program or not program[0].endswith(".py"):
        return
    path = normpath(f"{main['workingDir']}/{program[0]}" if not program[0].startswith("/") else program[0])
    paths = [file.path for file in code.files]
    if path.startswith(f"{MOUNT}/") and path.removeprefix(f"{MOUNT}/") not in paths:
        scripts = [path for path in paths if path.endswith(".py")]
        hint = near(program[0], scripts, lead="it has: ") or "name the script's folder by --code"
        raise ConvertError(f"{program[0]}: --code ships the folder {code.name}, which has no such file; {hint}")
