"""Decides which pods train together; a process of its own in the master's pod."""
