"""A real Kubernetes on one Linux machine, as root, for the demo and for the tests.

`Cluster` is what tests and scripts use; `python -m devcluster` is the same for the command line. Every other module
makes one kind of thing (programs, images, certificates, links, processes) and can remove it again.
"""
