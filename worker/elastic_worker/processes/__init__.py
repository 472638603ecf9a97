"""Starts, watches and ends the training processes of one pod. This package does not depend on other pods."""
