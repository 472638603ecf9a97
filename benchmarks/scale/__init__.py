"""Measures how fast hundreds of jobs start that are created at once, and how all figures grow with their number.

It runs as `python -m benchmarks.scale` (`make bench-scale`). API server, scheduler and the operator (from its image,
installed by its chart on one real node) are real; KWOK simulates the kubelets of the GPU nodes. For comparison, a plain
client writes the same objects in the same cluster. All times come from the API server's audit log. At the end, the
invariants are checked over the whole log. With `--churn MINUTES` jobs are also created and end for that time.
"""
