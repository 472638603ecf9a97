"""The admin's tools: the operator's own decisions, on files instead of on a cluster."""
