"""Names of what each of several pytest workers has for itself."""

from __future__ import annotations

import os


def own_name(name: str) -> str:
    """A cluster's name; another one in each worker."""
    return name + os.environ.get("PYTEST_XDIST_WORKER", "")
