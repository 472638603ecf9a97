"""Whose pods go so that others get theirs: who may take from whom, and which way costs least."""
