"""`elastic-operator`: run | crds | version, and the admin's tools on files."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from pythonjsonlogger.json import JsonFormatter

from elastic_operator import process, settings
from elastic_operator.tools import commands as tools
from elastic_worker import contract

RECURSION_LIMIT = 20_500
"""The API server stores templates nested up to 10,000 levels. One such job must not hide all others."""


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="elastic-operator", description="Elastic PyTorch jobs on Kubernetes.")
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the operator")
    run.add_argument("--settings", type=Path, default=settings.DEFAULT_FILE, help="YAML file of settings")
    commands.add_parser("crds", help="print the CustomResourceDefinitions")
    commands.add_parser("version", help="the same as --version")
    tools.add_to(commands)
    arguments = parser.parse_args(argv)
    match arguments.command:
        case "run":
            return _run(arguments.settings)
        case "crds":
            from elastic_api import crd

            sys.stdout.write(crd.generate())
        case "version":
            sys.stdout.write(_version() + "\n")
        case _:
            sys.setrecursionlimit(RECURSION_LIMIT)
            return tools.run(arguments.tool, arguments)
    return 0


def _version() -> str:
    """The version of this program, and the versions of pods that it understands."""
    return (
        f"elastic-operator {version('elastic-pytorch-operator')}, contract {contract.VERSION},"
        f" Python {platform.python_version()}"
    )


def _run(file: Path) -> int:
    try:
        loaded = settings.load(os.environ, file)
    except settings.SettingsError as error:
        sys.stderr.write(f"elastic-operator: {error}\n")
        return 2
    handler, wanted = logging.StreamHandler(), loaded.logging
    fields = "%(asctime)s %(levelname)s %(name)s %(message)s"
    handler.setFormatter(JsonFormatter(fields) if wanted.format == "json" else logging.Formatter(fields))
    logging.basicConfig(level=wanted.level.upper(), handlers=[handler], force=True)
    sys.setrecursionlimit(RECURSION_LIMIT)
    asyncio.run(process.run(loaded))
    return 0
