"""What a person can mend, or should report: one line, not a traceback."""


class BenchError(RuntimeError):
    """The benchmark cannot be made as asked, or something did not come about in time."""
