"""Carries plans out: the writes for one job, when they are due, and what becomes of those that fail."""
