"""A real Kubernetes on one Linux machine, as root, for the demo and for the tests.

Tests and scripts use `Cluster`; `python -m devcluster` offers the same on the command line. Every other module makes
one kind of thing (programs, images, certificates, links, processes) and can remove it again.
"""
