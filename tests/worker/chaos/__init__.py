"""Injects random faults into a training job for a chosen time: the job must finish, and leave nothing behind."""
