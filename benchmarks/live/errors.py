"""Errors that the user can correct or should report: one line, not a traceback."""

from devcluster.errors import DevclusterError


class BenchError(DevclusterError):
    """The benchmark cannot run as asked, or a condition was not met in time."""
