"""Checkpoints of scripts that know nothing of us, seen from outside: when one is complete, and stopping right there."""
