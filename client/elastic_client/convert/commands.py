"""The commands of this package for `kubectl elastic`: thin, and without a cluster.

    app.add_typer(commands.import_app, name="import")
    app.add_typer(commands.export_app, name="export")    # or commands.make_export_app(read_job) to take names, too
    commands.add_run(app, submit)                        # `run` and `submit-dist`

Manifests are printed to standard output, remarks on them to standard error. A `ConvertError` is one line there, with
the exit code of a wrong call.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from elastic_client.exits import ClientError, Code
from elastic_client.words import printable

if TYPE_CHECKING:
    from elastic_client.convert.converted import Converted
    from elastic_client.convert.run import RunFlags

REST = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
"""Words after the known flags belong to torchrun and the command."""
MOST_DEPTH, MOST_PARTS = 100, 200_000
"""Limits of a file with objects: above those of the API server."""
KIND = "ElasticPyTorchJob"
ReadJob = Callable[[str], Mapping[str, Any]]
"""Reads a job of the cluster by its name; raises the errors of the client's other commands."""

FileOption = Annotated[str, typer.Option("--filename", "-f", metavar="FILE", help="The file; - is standard input.")]
JobArgument = Annotated[str, typer.Argument(metavar="[JOB]", help="A job of the cluster.")]
JobFileOption = Annotated[
    str, typer.Option("--filename", "-f", metavar="FILE", help="A manifest; - is standard input.")
]
ImageCommand = Annotated[
    str,
    typer.Option(metavar="CMD", help="The image's own ENTRYPOINT and CMD as one text. The operator reads no images."),
]


Workers = Annotated[
    str, typer.Option(metavar="N|MIN:MAX", help="Pods, the master included, as torchrun's --nnodes. Default: 1.")
]
Gpus = Annotated[str, typer.Option("--gpus", "--gpu", "-g", metavar="N", help="GPUs per pod.")]
MinReplicas = Annotated[int | None, typer.Option(help="Fewest pods, the master included.")]
MaxReplicas = Annotated[int | None, typer.Option(help="Most pods, the master included.")]
Cpu = Annotated[str, typer.Option(metavar="AMOUNT", help="CPUs per pod, such as 8 or 500m.")]
Memory = Annotated[str, typer.Option(metavar="AMOUNT", help="Memory per pod, such as 64Gi.")]
Claims = Annotated[list[str] | None, typer.Option(metavar="CLAIM:PATH[:ro]", help="Repeatable.")]
PriorityClass = Annotated[str, typer.Option(help="PriorityClass of the job.")]


@dataclass(frozen=True, slots=True)
class After:
    """The steps of `run` after the job is created."""

    dry_run: bool
    wait: bool
    logs: bool
    when: bool = False


Submit = Callable[["Converted", After], None]
"""Creates the job in the cluster, or asks about it. With `--dry-run` it is not called to create."""


class WholeLine(TyperCommand):
    """A command that gets all its words as typed, `--` included, after its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command's own options, which are first; the other words are arguments."""
        end = args.index("--") if "--" in args else len(args)
        if {"-h", "--help"} & set(args[:end]):
            return super().parse_args(ctx, ["--help"])
        options: list[Any] = [option for option in self.params if option.param_type_name == "option"]
        needs_value = {text: not option.is_flag for option in options for text in option.opts}
        own: list[str] = []
        others: list[str] = []
        words = args[:end]
        while words:
            word = words.pop(0)
            name = word.partition("=")[0]
            (own if name in needs_value else others).append(word)
            if needs_value.get(word) and words:
                own.append(words.pop(0))
        return super().parse_args(ctx, [*own, "--", *others, *args[end:]])


Namespace = Annotated[str, typer.Option("-n", "--namespace", help="The namespace to write into the manifest.")]

import_app = typer.Typer(no_args_is_help=True, help="Convert another kind of job to an ElasticPyTorchJob.")


@import_app.command("pytorchjob")
def import_pytorchjob(
    context: typer.Context,
    filename: FileOption,
    entrypoint: Annotated[
        str, typer.Option(metavar="CMD", help="The image's own command, for containers with args only.")
    ] = "",
    namespace: Namespace = "",
) -> None:
    """PyTorchJobs of the training-operator (kubeflow.org/v1). Other objects in the file stay as they are."""
    import yaml

    from elastic_client.convert import manifest
    from elastic_client.convert.pytorchjob import from_documents

    with one_line():
        own = _split(entrypoint, "--entrypoint")
        for index, made in enumerate(from_documents(_documents(yaml, _text(filename)), own)):
            body = made.manifest
            if body.get("kind") == KIND:
                body = manifest.in_namespace(body, _namespace(context, namespace))
            _write(("---\n" if index else "") + manifest.to_yaml(body))
            _say(made)


@import_app.command("sbatch")
def import_sbatch(
    context: typer.Context,
    filename: FileOption,
    image: Annotated[str, typer.Option("--image", "-i", help="The image with python, torch and your code.")] = "",
    name: Annotated[str, typer.Option(help="The job's name, instead of the script's --job-name.")] = "",
    namespace: Namespace = "",
    args: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="The script's own arguments.")] = None,
) -> None:
    """A batch script of Slurm that trains on several nodes."""
    from elastic_client.convert.sbatch import from_sbatch

    with one_line():
        made = from_sbatch(_text(filename), image=image, name=name, args=args or [])
        _print(made, _namespace(context, namespace))


@import_app.command("runai", cls=WholeLine, context_settings={"allow_extra_args": True})
def import_runai(context: typer.Context, namespace: Namespace = "", image_command: ImageCommand = "") -> None:
    """A command line of Run:ai as it is: import runai submit-dist pytorch --name X --workers=3 -g 1 -i IMAGE -- ..."""
    from elastic_client.convert.runai import from_runai

    with one_line():
        _print(from_runai(context.args, image_command=image_command), _namespace(context, namespace))


def make_export_app(read_job: ReadJob | None = None) -> typer.Typer:
    """The commands that turn a job into something else; with `read_job` also one of the cluster."""
    app = typer.Typer(no_args_is_help=True, help="Convert an ElasticPyTorchJob to another kind of job.")

    @app.command("sbatch")
    def export_sbatch(job: JobArgument = "", filename: JobFileOption = "") -> None:
        """A batch script for Slurm that needs nothing but itself."""
        from elastic_client.convert.to_sbatch import to_sbatch

        with one_line():
            _write(to_sbatch(_job(job, filename, read_job)))

    @app.command("torchrun")
    def export_torchrun(
        job: JobArgument = "",
        filename: JobFileOption = "",
        nodes: Annotated[
            int | None, typer.Option(help="The number of machines. Default: the job's maximum of pods.")
        ] = None,
        host: Annotated[str, typer.Option(help="The first machine, as the others reach it.")] = "HOST",
        standalone: Annotated[bool, typer.Option("--standalone", help="One line, for one machine.")] = False,
    ) -> None:
        """One command line for each machine."""
        from elastic_client.convert.to_torchrun import to_torchrun

        with one_line():
            body = _job(job, filename, read_job)
            _write("\n".join(to_torchrun(body, nodes=nodes, host=host, standalone=standalone)) + "\n")

    @app.command("yaml")
    def export_yaml(context: typer.Context, job: JobArgument = "", filename: JobFileOption = "") -> None:
        """The manifest as its author would write it: no status, no defaults."""
        from elastic_client.convert import manifest

        with one_line():
            body = manifest.as_written(_job(job, filename, read_job))
            _write(manifest.to_yaml(manifest.in_namespace(body, _namespace(context))))
            _say_code(body)

    return app


export_app = make_export_app()
"""For manifests in files only."""


def run_manifest(typed: RunFlags) -> Converted:
    """The job that these flags of `run` describe. Raises ConvertError."""
    from elastic_client.convert.run import from_flags

    return from_flags(typed)


def add_run(app: typer.Typer, submit: Submit) -> None:
    """Add `run`, and `submit-dist` for lines of Run:ai, to an app. `submit` creates the job."""

    def finish(made: Converted, after: After, context: typer.Context) -> None:
        if after.when and (after.wait or after.logs):
            message = "--when: makes no job that could be waited for; leave --wait and --logs out"
            raise ClientError(Code.USAGE, message)
        if after.dry_run:
            with one_line():
                _print(made, _namespace(context))
            if after.when:
                submit(made, after)
            return
        _say(made)
        submit(made, after)

    @app.command("run", context_settings=REST, options_metavar="[OPTIONS] -- SCRIPT [ARG]...")
    def run(
        context: typer.Context,
        image: Annotated[str, typer.Option("--image", "-i", help="Image with python, torch and your code.")] = "",
        code: Annotated[
            str, typer.Option(metavar="DIR", help="A folder to ship: the pods have it at /code, beside the image.")
        ] = "",
        workers: Workers = "",
        gpus: Gpus = "",
        name: Annotated[str, typer.Option(help="The job's name; else the cluster makes one from the script's.")] = "",
        nproc_per_node: Annotated[
            str,
            typer.Option(
                "--nproc-per-node", "--nproc_per_node", metavar="N|auto", help="Processes per pod. auto: one per GPU."
            ),
        ] = "",
        min_replicas: MinReplicas = None,
        max_replicas: MaxReplicas = None,
        env: Annotated[
            list[str] | None, typer.Option("--env", "--environment", "-e", metavar="NAME=VALUE", help="Repeatable.")
        ] = None,
        cpu: Cpu = "",
        memory: Memory = "",
        pvc: Claims = None,
        volume: Annotated[
            list[str] | None,
            typer.Option(
                "--volume", "-v", metavar="SOURCE:PATH[:ro]", help="A node's folder, configmap/NAME or secret/NAME."
            ),
        ] = None,
        large_shm: Annotated[bool, typer.Option("--large-shm", help="A /dev/shm of more than 64 MB.")] = False,
        priority_class: PriorityClass = "",
        mode: Annotated[str, typer.Option(metavar="Torchrun|Elastic", help="How processes are started.")] = "",
        working_dir: Annotated[str, typer.Option(metavar="PATH", help="Folder in the image.")] = "",
        image_command: ImageCommand = "",
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the manifest.")] = False,
        when: Annotated[bool, typer.Option("--when", help="Only ask the cluster when it would start.")] = False,
        wait: Annotated[bool, typer.Option("--wait", help="Wait for the job's end.")] = False,
        logs: Annotated[bool, typer.Option("--logs", help="Follow the logs.")] = False,
    ) -> None:
        """Start a job: run --workers 2:8 -g 1 -i IMAGE -- train.py --lr 0.1"""
        from elastic_client.convert.run import RunFlags

        with one_line():
            made = run_manifest(
                RunFlags(
                    command=context.args,
                    image=image,
                    code=code,
                    image_command=image_command,
                    name=name,
                    workers=workers,
                    min_replicas=min_replicas,
                    max_replicas=max_replicas,
                    gpus=gpus,
                    nproc_per_node=nproc_per_node,
                    env=env or (),
                    cpu=cpu,
                    memory=memory,
                    pvc=pvc or (),
                    volume=volume or (),
                    large_shm=large_shm,
                    priority_class=priority_class,
                    mode=mode,
                    working_dir=working_dir,
                )
            )
        finish(made, After(dry_run, wait, logs, when), context)

    @app.command("submit-dist", cls=WholeLine, context_settings={"allow_extra_args": True})
    def submit_dist(
        context: typer.Context,
        image_command: ImageCommand = "",
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the manifest.")] = False,
    ) -> None:
        """Start a job by Run:ai's command line: submit-dist pytorch --name X --workers=3 -g 1 -i IMAGE -- ..."""
        from elastic_client.convert.runai import from_runai

        with one_line():
            made = from_runai(["submit-dist", *context.args], image_command=image_command)
        finish(made, After(dry_run, wait=False, logs=False), context)


def manifest_of(filename: str) -> Mapping[str, Any]:
    """The one job in the file. Raises ConvertError."""
    return _job("", filename, None)


@contextmanager
def one_line() -> Iterator[None]:
    """A ConvertError as one line, with the exit code of a wrong call."""
    from elastic_client.convert.converted import ConvertError

    try:
        yield
    except ConvertError as error:
        raise ClientError(Code.USAGE, str(error)) from None


def _namespace(context: typer.Context, typed: str = "") -> str:
    """The namespace flag after the command, else the one before it; "" without either."""
    earlier = context.find_root().params.get("namespace") if context.parent else None
    return typed or context.params.get("in_namespace") or earlier or ""


def _split(text: str, flag: str) -> list[str]:
    """The words of a command line. Raises ConvertError."""
    from elastic_client.convert.converted import ConvertError

    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConvertError(f"{flag} {text}: {error}: close the quote") from None


def _job(name: str, filename: str, read_job: ReadJob | None) -> Mapping[str, Any]:
    """The job, from a file or from the cluster. Raises ConvertError."""
    import yaml

    from elastic_client.convert.converted import ConvertError

    if bool(name) == bool(filename) or (name and read_job is None):
        raise ConvertError("write -f FILE" if read_job is None else "write either -f FILE or a job's name")
    if read_job and name:
        return read_job(name)
    found = [body for body in _documents(yaml, _text(filename)) if body.get("kind") == KIND]
    if len(found) != 1:
        raise ConvertError(f"-f {filename}: has {len(found)} ElasticPyTorchJobs: write a file with one")
    return found[0]


def _text(filename: str) -> str:
    """The file. Raises ConvertError."""
    from elastic_client.convert.converted import ConvertError

    try:
        return sys.stdin.read() if filename == "-" else Path(filename).read_text()
    except OSError as error:
        raise ConvertError(
            f"-f {filename}: {error.strerror}: write the path of a file, or - for standard input"
        ) from None
    except UnicodeDecodeError as error:
        raise ConvertError(f"-f {filename}: {error}: must be text in UTF-8") from None


def _documents(yaml: Any, text: str) -> list[dict[str, Any]]:
    """The objects of a stream of YAML. Raises ConvertError."""
    from elastic_client.convert.converted import ConvertError

    try:
        found = [body for body in yaml.safe_load_all(text) if body is not None]
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())
        raise ConvertError(f"the file is not valid YAML: {message}") from None
    if not found or not all(isinstance(body, dict) for body in found):
        raise ConvertError("the file has no object of Kubernetes: write one with kind and spec")
    if not _is_finite(found):
        raise ConvertError("the file has a part that contains itself, or too many parts: write it out without * and &")
    return found


def _is_finite(tree: object) -> bool:
    """Whether the tree can be written out: an alias of YAML may make a tree that is endless or nearly so."""
    left, count = [(tree, 0)], 0
    while left:
        value, depth = left.pop()
        count += 1
        if depth > MOST_DEPTH or count > MOST_PARTS:
            return False
        children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        left += [(child, depth + 1) for child in children]
    return True


def _print(made: Converted, namespace: str) -> None:
    from elastic_client.convert import manifest

    objects = [made.manifest]
    if made.code is not None:
        from elastic_client.code.objects import by_hand, config_map

        objects.insert(0, config_map(made.code, applied=True))
    _write("---\n".join(manifest.to_yaml(manifest.in_namespace(body, namespace)) for body in objects))
    _say(made)
    if made.code is not None:
        for line in by_hand(made.code):
            typer.echo(line, err=True)


def _write(text: str) -> None:
    """Write to standard output, every character unchanged: click would remove some if the output is no terminal."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _say_code(body: Mapping[str, Any]) -> None:
    """Report that the code is not a part of the manifest, and is deleted with the job."""
    from elastic_client.code.objects import MOUNT, code_of

    if name := code_of(body["spec"]["template"]):
        message = (
            f"The code at {MOUNT} is in the ConfigMap {name}, which is deleted with the job: a copy needs it, too."
        )
        typer.echo(message, err=True)


def _say(made: Converted) -> None:
    for line in made.lines():
        typer.echo(printable(line), err=True)
