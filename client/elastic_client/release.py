"""The release of this client."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "elastic-pytorch-client"


def own_version() -> str:
    """The version of this client; `?` if it is not installed as a package."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "?"
