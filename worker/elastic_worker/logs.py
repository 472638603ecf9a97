"""How the processes of this package log: one line per change, to stderr, beside what the script prints."""

from __future__ import annotations

import logging
import os
import sys


def set_up(name: str) -> None:
    """Log as `name`; ELASTIC_LOG_LEVEL (debug, info, warning, error) says how much."""
    level = os.environ.get("ELASTIC_LOG_LEVEL", "info").upper()
    logging.basicConfig(
        stream=sys.stderr,
        level=level if level in ("DEBUG", "INFO", "WARNING", "ERROR") else "INFO",
        format=f"%(asctime)s.%(msecs)03d elastic-{name}: %(message)s",
        datefmt="%H:%M:%S",
    )


def brief(told: str) -> str:
    """Several lines as one: the first and the last."""
    lines = told.strip().splitlines()
    return told if len(lines) < 2 else f"{lines[0]} ... {lines[-1].strip()}"
