"""Helpers of the tests of all layers."""
