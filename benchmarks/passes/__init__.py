"""Measures the operator's passes under heavy loads: CPU seconds of a pass, and of one turn of the event loop.

`loads.py` describes the clusters, `server.py` answers the writes in memory, `measure.py` runs the real controller on
both and takes the times. They are CPU times, so that a busy machine has the same figures.
"""
