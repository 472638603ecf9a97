"""What the operator's passes cost under three heavy loads: CPU seconds of a pass, and of one turn of the event loop.

`loads.py` says what the cluster holds, `server.py` answers the writes in memory, `measure.py` runs the real controller
on both and takes the times. CPU time, so that a busy machine says the same.
"""
