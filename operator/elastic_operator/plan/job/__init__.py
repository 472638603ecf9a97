"""Decides about one job: what has happened to it, what it demands, and the writes for it. This package knows no other
job.
"""
