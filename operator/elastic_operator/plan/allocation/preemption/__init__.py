"""Preemption: which team may take GPUs from which, the candidates, and the cheapest option."""
