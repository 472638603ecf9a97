"""How fast hundreds of jobs come to run that are created at once, and how that and all else grows with their number.

`python -m benchmarks.scale` (`make bench-scale`). Everything is real but the kubelets of the GPU nodes, which KWOK
plays: API server, scheduler, and the operator from its image, installed by its chart on one real node. Beside it, in
the same cluster, a plain client writes the same objects. All times come from the API server's audit log. At the end,
what must hold at every moment is checked over the whole log. With `--churn MINUTES` jobs also come and go for so long.
"""
