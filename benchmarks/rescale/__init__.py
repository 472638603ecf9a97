"""Measures the cost of a change of size: a plain script (stock and tuned torchrun, Elastic mode), and the library."""
