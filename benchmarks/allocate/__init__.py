"""How long one decision about a large cluster takes: look, inputs and allocation, without an API server.

`scenario.py` describes the cluster, `objects.py` makes its Kubernetes objects, `world.py` puts them into the operator's
own stores, ledger and view, `measure.py` takes the times.
"""
