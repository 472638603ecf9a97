"""Measures how fast a team gets its GPUs back from borrowing jobs, and whether more is evicted than requested.

It runs as `python -m benchmarks.reclaim` (`make bench-reclaim`), first with four nodes of one GPU, then with 500 nodes
of eight GPUs that 1,000 elastic jobs fill. API server, controllers, scheduler and the operator (from its image, under
its own ServiceAccount) are real; KWOK simulates the kubelets of the GPU nodes. KWOK removes a pod as soon as it is
deleted: the pods here end at once, without the time that a training script needs for its checkpoint. All times come
from the API server's audit log, so that one clock took both ends of each.
"""
