"""Decides for all jobs at once: how many pods each gets and on which nodes, which pods are preempted, and why a job is
not bigger.
"""
