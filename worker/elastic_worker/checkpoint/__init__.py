"""Checkpoints of scripts that do not use our library: detects when one is complete, and stops the processes there."""
