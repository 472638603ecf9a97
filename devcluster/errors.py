"""The one exception that a person is meant to read: what could not be done, and what to do instead."""


class DevclusterError(RuntimeError):
    """Something the person at the keyboard can change: the message says what and how."""
