"""What a person can mend, or should report: one line, not a traceback."""

from devcluster.errors import DevclusterError


class BenchError(DevclusterError):
    """The benchmark cannot be made as asked, or something did not come about in time."""
