"""Measures how fast the operator reacts in a full cluster of 250 jobs with 1,000 pods, and its cost at rest.

`python -m benchmarks.react` (`make bench-react`). Everything is real but the kubelets of the GPU nodes, which KWOK
plays: API server, scheduler, and the operator from its image, installed by its chart on one real node. All times come
from the API server's audit log, so that both ends of each were taken by one clock.
"""
