"""Who gets more done with the same GPUs: this project's allocator, or one of three simpler policies.

`traces.py` draws what happens to a cluster from a seed, `model.py` says what a change of size costs, `training.py` how
a job gets on, `world.py` has both and passes the time. `ours.py` drives the operator's own decisions, `baselines.py`
has the other policies. `figures.py` sums up what came of it, `report.py` shows it.
"""
