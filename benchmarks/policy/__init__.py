"""Compares the work done on the same GPUs under this project's allocator and under three simpler policies.

`traces.py` draws the events of a cluster from a seed, `model.py` has the costs of a change of size, `training.py`
simulates a job, and `world.py` runs trace and jobs in virtual time. `ours.py` drives the operator's own decisions,
`baselines.py` has the other policies. `figures.py` sums up the results, `report.py` shows them.
"""
