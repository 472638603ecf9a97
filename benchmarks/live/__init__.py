"""What the benchmarks on a real cluster share: the cluster with the operator in it, the API server's log of what was
written and when, what the operator takes of the machine, and the command line's manners.
"""
