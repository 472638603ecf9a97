"""Snapshot in, decisions out. Pure: no clock, no I/O, no randomness; the same input gives the same output."""
