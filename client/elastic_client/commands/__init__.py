"""The commands, one module for each kind: their requests to the cluster, and their output."""
