"""The exception whose message is for the user: what could not be done, and what to do instead."""


class DevclusterError(RuntimeError):
    """An error that the user can correct; the message says what to change and how."""
