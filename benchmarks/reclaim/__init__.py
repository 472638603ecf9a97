"""How fast a team gets its GPUs back from jobs that borrowed them, and whether more is taken than is asked for.

`python -m benchmarks.reclaim` (`make bench-reclaim`). First four nodes of one GPU, then 500 of eight that 1,000 elastic
jobs fill. Everything is real but the kubelets of the GPU nodes, which KWOK plays: API server, controllers, scheduler,
and the operator from its image, under its own ServiceAccount. KWOK's kubelets remove a pod as soon as it is deleted:
the pods here end at once, without the time that a training script needs for its checkpoint. All times come from the API
server's audit log, so that both ends of each were taken by one clock.
"""
