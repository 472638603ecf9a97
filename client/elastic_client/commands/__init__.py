"""The commands, one module for each kind: what is asked of the cluster, and what is shown of the answer."""
