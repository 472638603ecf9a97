"""Decides about one job: what has happened to it, what it demands, and what is done for it. This package knows no other
job.
"""
