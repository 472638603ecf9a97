"""Demonstrations against a real cluster: what a user would do, with a clock beside it."""
