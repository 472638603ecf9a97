"""Demonstrations on a real cluster: a user's actions, with a clock beside them."""
