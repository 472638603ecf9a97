"""The common parts of the benchmarks on a real cluster: the cluster with the operator, the API server's log of writes
with their times, the operator's use of the machine, and the command line.
"""
