"""Measures how fast the operator reacts in a full cluster of 250 jobs with 1,000 pods, and its cost at rest.

It runs as `python -m benchmarks.react` (`make bench-react`). The API server, the scheduler and the operator (from its
image, installed by its chart on one real node) are real; KWOK simulates the kubelets of the GPU nodes. All times come
from the API server's audit log, so that one clock took both ends of each.
"""
