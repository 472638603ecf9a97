"""The administrator's tools: the operator's own decisions, made from files instead of a cluster."""
