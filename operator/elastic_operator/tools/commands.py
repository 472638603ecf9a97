"""The command lines of the tools: their arguments and their output."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastic_operator import settings
from elastic_operator.tools import live, replay, share, simulate, snapshot_file
from elastic_operator.tools.apply_changes import apply_changes
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot
from elastic_operator.tools.files import InputError, read_json, write_json, write_text
from elastic_operator.tools.manifests import read_changes

REFUSED = 2
"""Exit code for wrong input, as for a wrong command line."""


def add_to(commands: Any) -> None:
    """Add all tools to `commands`, from `add_subparsers` of a parser; `arguments.tool` runs the chosen one."""
    shares = commands.add_parser("share", help="divide GPUs among the policies of a JSON file")
    shares.add_argument("file", help="JSON with total and policies; - for the standard input")
    shares.set_defaults(tool=lambda a: write_json(share.share(read_json(a.file), source=a.file)))

    snapshots = commands.add_parser("snapshot", help="save the inputs of one pass as JSON")
    snapshots.add_argument("--output", metavar="FILE", help="write to this file instead of the standard output")
    snapshots.add_argument("--schema", action="store_true", help="print the JSON Schema of the file instead")
    snapshots.add_argument("--kubeconfig", metavar="FILE", help="the cluster's kubeconfig ($KUBECONFIG)")
    snapshots.add_argument("--context", metavar="NAME", help="the kubeconfig's context (its current one)")
    _add_settings(snapshots)
    snapshots.set_defaults(tool=_run_snapshot)

    replays = commands.add_parser("replay", help="repeat the decisions of a snapshot, with reasons")
    _add_snapshot_argument(replays)
    replays.set_defaults(tool=_replay)

    simulations = commands.add_parser("simulate", help="show the effect of changed jobs or policies on a snapshot")
    _add_snapshot_argument(simulations)
    simulations.add_argument("--change", metavar="FILE", help="manifests of jobs and policies, as for kubectl apply")
    simulations.add_argument(
        "--delete",
        metavar="KIND/NAME",
        action="append",
        default=[],
        help="a job (job/NAMESPACE/NAME) or policy (policy/NAME) to take away; may be given again",
    )
    _add_settings(simulations)
    simulations.set_defaults(tool=_simulate)


def run(tool: Callable[[argparse.Namespace], str], arguments: argparse.Namespace) -> int:
    """Print the tool's output; returns the exit code."""
    try:
        output = tool(arguments)
    except InputError as error:
        for line in error.lines:
            sys.stderr.write(f"elastic-operator: {line}\n")
        return REFUSED
    _print(output)
    return 0


def _print(text: str) -> None:
    """Print the text. If the reader stops early, as `head` does, nothing is reported at the end either."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_snapshot(arguments: argparse.Namespace) -> str:
    if arguments.schema:
        text = snapshot_file.schema()
    else:
        connection, loaded = live.connect(arguments.kubeconfig, arguments.context), _settings(arguments)
        text = snapshot_file.encode(asyncio.run(live.take_snapshot(connection, loaded)))
    if arguments.output is None:
        return text
    write_text(arguments.output, text)
    return ""


def _replay(arguments: argparse.Namespace) -> str:
    snapshot = _snapshot(arguments)
    return write_json(replay.as_data(snapshot)) if arguments.output == "json" else replay.as_text(snapshot)


def _simulate(arguments: argparse.Namespace) -> str:
    snapshot = _snapshot(arguments)
    changes = read_changes(arguments.change, arguments.delete, gpu_resources=snapshot.settings.gpu_resources)
    after = apply_changes(snapshot, changes, _settings(arguments))
    if arguments.output == "json":
        return write_json(simulate.as_data(snapshot, after))
    return simulate.as_text(snapshot, after)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--settings", type=Path, default=settings.DEFAULT_FILE, help="YAML file of the operator's settings"
    )


def _settings(arguments: argparse.Namespace) -> settings.Settings:
    try:
        return settings.load(os.environ, arguments.settings)
    except settings.SettingsError as error:
        raise InputError([str(error)]) from None


def _add_snapshot_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a file written by `elastic-operator snapshot`; - for the standard input")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how to print (text)")


def _snapshot(arguments: argparse.Namespace) -> ClusterSnapshot:
    return snapshot_file.decode(read_json(arguments.file), source=arguments.file)
