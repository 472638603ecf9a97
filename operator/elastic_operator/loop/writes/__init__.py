"""Carries plans out: the writes for one job, their times, and the retries of failed ones."""
