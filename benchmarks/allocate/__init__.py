"""Measures the time of one decision about a large cluster: look, inputs and allocation, without an API server.

`scenario.py` describes the cluster, `objects.py` makes its Kubernetes objects, `world.py` puts them into the operator's
stores, ledger and view, `measure.py` takes the times.
"""
