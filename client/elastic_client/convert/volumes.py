"""Volumes from flags: `--pvc CLAIM:PATH[:ro]`, `--volume SOURCE:PATH[:ro]`, and Run:ai's forms of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastic_client.convert.converted import ConvertError
from elastic_client.convert.manifest import fitting_name

PVC = "write CLAIM:PATH or CLAIM:PATH:ro, such as data:/data; the claim must exist in the job's namespace"
VOLUME = (
    "write SOURCE:PATH or SOURCE:PATH:ro, where SOURCE is a folder of the node such as /data, configmap/NAME or"
    " secret/NAME; or /EXPORT:PATH::HOST for NFS"
)
EXISTING = "write claimname=CLAIM,path=PATH, and ,ro for a volume to read only"

FORMS = {
    "--host-path": "path=PATH,mount=PATH and ,readwrite for a folder to write to",
    "--nfs": "path=EXPORT,server=HOST,mountpath=PATH and ,readwrite for an export to write to",
    "--configmap-map-volume": "name=CONFIGMAP,path=PATH",
}


@dataclass(frozen=True, slots=True)
class Mounted:
    """A pod's volume and its path in the main container."""

    volume: dict[str, Any]
    mount: dict[str, Any]


def claim(text: str, flag: str = "--pvc") -> Mounted:
    """An existing claim: CLAIM:PATH[:ro]. Raises ConvertError."""
    name, path, *rest = [*text.split(":"), ""][:4] if text.count(":") else (text, "", "")
    options = [part for part in rest if part]
    if not name or not path.startswith("/") or options not in ([], ["ro"]):
        raise ConvertError(f"{flag} {text}: {PVC}")
    return _mounted(f"claim-{name}", {"persistentVolumeClaim": {"claimName": name}}, path, is_readonly=bool(options))


def existing_claim(text: str, flag: str) -> Mounted:
    """A claim in Run:ai's form: claimname=CLAIM,path=PATH[,ro]. Raises ConvertError."""
    parts = text.split(",")
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    flags = [part for part in parts if "=" not in part]
    name, path = named.pop("claimname", ""), named.pop("path", "")
    if not name or not path.startswith("/") or named or flags not in ([], ["ro"]):
        raise ConvertError(f"{flag} {text}: {EXISTING}")
    return _mounted(f"claim-{name}", {"persistentVolumeClaim": {"claimName": name}}, path, is_readonly=bool(flags))


def host_path(text: str) -> Mounted:
    """A folder of the node in Run:ai's form. Raises ConvertError."""
    named, is_readonly = _fields(text, "--host-path", ("path", "mount"), ("mount-propagation",))
    made = _mounted(named["path"], {"hostPath": {"path": named["path"]}}, named["mount"], is_readonly=is_readonly)
    propagation = named.get("mount-propagation", "None")
    return made if propagation == "None" else Mounted(made.volume, {**made.mount, "mountPropagation": propagation})


def nfs(text: str) -> Mounted:
    """An export of NFS in Run:ai's form. Raises ConvertError."""
    named, is_readonly = _fields(text, "--nfs", ("path", "server", "mountpath"))
    source = {"nfs": {"server": named["server"], "path": named["path"]}}
    return _mounted(named["path"], source, named["mountpath"], is_readonly=is_readonly)


def configmap(text: str) -> Mounted:
    """A ConfigMap in Run:ai's form. Raises ConvertError."""
    named, _ = _fields(text, "--configmap-map-volume", ("name", "path"))
    return _mounted(
        f"configmap-{named['name']}", {"configMap": {"name": named["name"]}}, named["path"], is_readonly=False
    )


def _fields(text: str, flag: str, needed: Sequence[str], more: Sequence[str] = ()) -> tuple[dict[str, str], bool]:
    """The parts of NAME=VALUE,..., and whether `readwrite` is not among them. Raises ConvertError."""
    parts = text.split(",")
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    flags = [part for part in parts if "=" not in part]
    is_whole = all(named.get(name) for name in needed) and named.keys() <= {*needed, *more}
    if not is_whole or not named[needed[-1]].startswith("/") or flags not in ([], ["readwrite"]):
        raise ConvertError(f"{flag} {text}: write {FORMS[flag]}")
    return named, not flags


def volume(text: str, flag: str = "--volume") -> Mounted:
    """A folder of the node, an NFS export, a ConfigMap or a Secret. Raises ConvertError."""
    source, path, mode, host = [*text.split(":"), "", "", ""][:4]
    if text.count(":") > 3 or not source or not path.startswith("/") or mode not in ("", "ro"):
        raise ConvertError(f"{flag} {text}: {VOLUME}")
    return _mounted(fitting_name(source), _source(source, host, f"{flag} {text}"), path, is_readonly=mode == "ro")


def mounted(found: Sequence[Mounted]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of a pod and of its main container. One volume may be mounted twice; names are made different."""
    volumes: dict[str, dict[str, Any]] = {}
    mounts = []
    for item in found:
        name, number = str(item.volume["name"]), 1
        while volumes.get(name, {**item.volume, "name": name}) != {**item.volume, "name": name}:
            number += 1
            name = f"{item.volume['name']}-{number}"
        volumes[name] = {**item.volume, "name": name}
        mounts.append({**item.mount, "name": name})
    return {"volumes": list(volumes.values())} if volumes else {}, {"volumeMounts": mounts} if mounts else {}


def _source(source: str, host: str, text: str) -> Mapping[str, Any]:
    kind, slash, name = source.partition("/")
    if host and source.startswith("/"):
        return {"nfs": {"server": host, "path": source}}
    if source.startswith("/"):
        return {"hostPath": {"path": source}}
    if slash and name and kind.lower() == "configmap":
        return {"configMap": {"name": name}}
    if slash and name and kind.lower() == "secret":
        return {"secret": {"secretName": name}}
    raise ConvertError(f"{text}: {VOLUME}")


def _mounted(name: str, source: Mapping[str, Any], path: str, *, is_readonly: bool) -> Mounted:
    fitting = fitting_name(name) or "volume"
    mount = {"name": fitting, "mountPath": path, **({"readOnly": True} if is_readonly else {})}
    return Mounted({"name": fitting, **source}, mount)
