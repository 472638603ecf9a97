"""The flags of `run --local`, and `scale` for a run on this machine. Code for training is imported only when needed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elastic_client import screen
from elastic_client.commands.change import Bounds, bounds, check_least
from elastic_client.exits import ClientError, Code
from elastic_client.screen import Format
from elastic_client.words import sizes

if TYPE_CHECKING:
    from elastic_client.local.place import Run

Command = Callable[..., None]

Local = Annotated[bool, typer.Option("--local", help="Train on this machine, in Elastic mode, without a cluster.")]
Python = Annotated[
    str, typer.Option("--python", metavar="PATH", help="--local: the python with torch. Default: the one on PATH.")
]
CheckpointPath = Annotated[
    str,
    typer.Option(
        "--checkpoint-path",
        metavar="PATH",
        help="--local: file or folder that the script saves to; the size changes right after a checkpoint.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option("--port", min=1024, max=65_534, help="--local: first of two ports. Default: any that are free."),
]
FLAGS: dict[str, tuple[Any, Any]] = {
    "local": (Local, False),
    "python": (Python, ""),
    "checkpoint_path": (CheckpointPath, ""),
    "port": (Port, None),
}
CLUSTER_ONLY = {
    "image": "--image",
    "image_command": "--image-command",
    "cpu": "--cpu",
    "memory": "--memory",
    "pvc": "--pvc",
    "volume": "--volume",
    "large_shm": "--large-shm",
    "priority_class": "--priority-class",
    "mode": "--mode",
    "working_dir": "--working-dir",
}
"""Flags of `run` that this machine does not need. They are accepted, so that one line serves both."""
OF_TYPED = ("name", "workers", "min_replicas", "max_replicas", "gpus", "nproc_per_node", "env")
NO_SIZE = "SIZE: write how many pods, as in `scale {} 4`"
OptionalSize = Annotated[
    Bounds | None, typer.Argument(metavar="SIZE", parser=bounds, help="Pods, master included: 2:8, or 4 for at most 4.")
]


def add_local(runs: typer.Typer) -> None:
    """Add the flag --local and its companions to `run`."""
    (run,) = (registered for registered in runs.registered_commands if registered.name == "run")
    assert run.callback is not None
    run.callback = _or_here(run.callback)


def or_local(scale: Command) -> Command:
    """`scale`, which also takes the name of a run on this machine, or no name if there is only one run.

    If a flag names a cluster, a namespace or a kubeconfig, it means the cluster's job.
    """
    own = inspect.signature(scale, eval_str=True).parameters.values()
    parameters = [
        parameter.replace(annotation=OptionalSize, default=None) if parameter.name == "size" else parameter
        for parameter in own
    ]

    @functools.wraps(scale)
    def run(**values: Any) -> None:
        if _scaled_here(values):
            return
        try:
            scale(**values)
        except ClientError as error:
            if error.code != Code.UNREACHABLE or _names_a_cluster(values):
                raise
            message = f"no run of this machine is named {values['job']!r}, and no cluster can be reached"
            raise ClientError(error.code, f"{message}: {error}") from None

    return _signed(run, parameters)


def _or_here(on_cluster: Command) -> Command:
    own = list(inspect.signature(on_cluster, eval_str=True).parameters.values())
    further = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in FLAGS.items()
    ]

    @functools.wraps(on_cluster)
    def run(**values: Any) -> None:
        flags = {name: values.pop(name) for name in FLAGS}
        if flags.pop("local"):
            if code := _train(values, **flags):
                raise typer.Exit(code)
            return
        if given := [name for name, value in flags.items() if value]:
            flag = f"--{given[0].replace('_', '-')}"
            raise ClientError(Code.USAGE, f"{flag} {flags[given[0]]}: only for a run on this machine: add --local")
        on_cluster(**values)

    return _signed(run, [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *further])


def _signed(command: Command, parameters: list[inspect.Parameter]) -> Command:
    """The command with these parameters, as typer reads them."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _train(values: dict[str, Any], *, python: str, checkpoint_path: str, port: int | None) -> Code:
    """Train. Raises ClientError for mistakes in flags, python, GPUs, ports or the name, and if the script fails."""
    for name, flag in (("dry_run", "--dry-run"), ("when", "--when")):
        if values[name]:
            raise ClientError(Code.USAGE, f"{flag}: --local makes nothing in a cluster; leave one of the two out")
    from elastic_client.convert.run import RunFlags
    from elastic_client.local import machine

    typed = RunFlags(command=values["context"].args, **{name: values[name] or _empty(name) for name in OF_TYPED})
    environ = dict(os.environ)
    folder = _in_folder(values["code"])
    _check_script(values["context"].args, Path(values["code"]))
    here = machine.look(python, environ)
    # These need Linux, too.
    from elastic_client.local.plan import plan
    from elastic_client.local.run import train

    with folder:
        made = plan(typed, here, checkpoint_path=checkpoint_path, ports=machine.ports(port))
        for line in [*(flag for name, flag in CLUSTER_ONLY.items() if values[name]), *made.dropped]:
            screen.note(f"not used on this machine: {line}")
        return train(made, environ)


def _in_folder(code: str) -> contextlib.AbstractContextManager[None]:
    """Run in the folder that --code names, as in a pod. Raises ClientError, USAGE."""
    if code and not Path(code).is_dir():
        raise ClientError(Code.USAGE, f"--code {code}: is no folder: write the one with your script, such as --code .")
    return contextlib.chdir(code or ".")


def _check_script(words: Sequence[str], folder: Path) -> None:
    """Raise ClientError, USAGE if the script does not exist: each pod would report that, and start again."""
    if words and words[0].endswith(".py") and not (folder / words[0]).is_file():
        message = f"there is no such file in {folder.resolve()}; write the path of your script"
        raise ClientError(Code.USAGE, f"-- {words[0]}: {message}")


def _empty(name: str) -> Any:
    """The value of an absent flag in RunFlags."""
    return {"env": (), "min_replicas": None, "max_replicas": None}.get(name, "")


def _scaled_here(values: dict[str, Any]) -> bool:
    """Change the size of a run on this machine if one is meant. Raises ClientError."""
    name, size = values["job"], values["size"]
    if sys.platform != "linux":  # nothing trains by --local elsewhere
        if size is None:
            raise ClientError(Code.USAGE, NO_SIZE.format(name))
        return False
    from elastic_client.local import place

    at = place.folder()
    if size is None:
        if name[:1].isalpha():
            raise ClientError(Code.USAGE, NO_SIZE.format(name))
        wanted = bounds(name)
        _scale(place.only(name, at=at), wanted, values["output"], at)
        return True
    if _names_a_cluster(values):
        return False
    if (run := place.find(name, at=at)) is None:
        return False
    _scale(run, size, values["output"], at)
    return True


def _names_a_cluster(values: dict[str, Any]) -> bool:
    """Whether a flag means a cluster's job."""
    return any(value for key, value in values.items() if key.startswith("in_"))


def _scale(run: Run, size: Bounds, output: Format, at: Path) -> None:
    from elastic_client.local import place
    from elastic_client.local.plan import check_room

    if output not in (Format.TABLE, Format.WIDE):
        message = f"run {run.name} on this machine is no object: leave the flag out, or name a namespace by -n"
        raise ClientError(Code.USAGE, f"--output {output}: {message}")
    present = place.read_sizes(run.name, at=at)
    check_least(size, present.fewest, what=f"run {run.name}")
    after = place.Sizes(present.fewest if size.small is None else size.small, size.big)
    check_room(after, run.room, run.gpus_each, flag=f"SIZE {after.fewest}:{after.most}")
    place.write_sizes(run.name, after, at=at)
    room = "" if run.room is None or run.room >= after.most else f"; there are GPUs for {run.room}"
    new, old = sizes(after.fewest, after.most), sizes(present.fewest, present.most)
    pods = f"{new} {'pod' if new == '1' else 'pods'}"
    screen.console().print(f"run {run.name} on this machine may have {pods} (before: {old}){room}", soft_wrap=True)
