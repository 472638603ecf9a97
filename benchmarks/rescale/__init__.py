"""Measures the cost of a change of size for a plain script (stock and tuned torchrun, Elastic mode) and for one that
uses the library.
"""
