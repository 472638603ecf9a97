"""Measures the additional cost of a step with the library in a group that never changes, under plain torchrun."""
