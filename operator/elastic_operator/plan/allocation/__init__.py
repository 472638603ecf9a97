"""All jobs at once: how many pods each gets and where, which pods go, and why a job is not bigger."""
