"""Decides who trains together; a process of its own in the master pod."""
