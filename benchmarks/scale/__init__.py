"""Measures how fast hundreds of jobs start that are created at once, and how all figures grow with their number.

`python -m benchmarks.scale` (`make bench-scale`). Everything is real but the kubelets of the GPU nodes, which KWOK
plays: API server, scheduler, and the operator from its image, installed by its chart on one real node. Beside it, in
the same cluster, a plain client writes the same objects. All times come from the API server's audit log. At the end,
the invariants are checked over the whole log. With `--churn MINUTES` jobs are also created and end for that time.
"""
