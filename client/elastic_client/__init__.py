"""`kubectl elastic`: commands to submit, watch, explain and change jobs, and the same from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elastic_client.job_client import AsyncJobClient as AsyncJobClient
    from elastic_client.job_client import JobClient as JobClient

__all__ = ["AsyncJobClient", "JobClient"]


def __getattr__(name: str) -> Any:
    """The clients for Python, imported at their first use: no command needs them, and each imports this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from elastic_client import job_client

    return getattr(job_client, name)
