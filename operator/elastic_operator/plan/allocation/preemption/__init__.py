"""Preemption: who may take from whom, which pods go, and which option costs least."""
