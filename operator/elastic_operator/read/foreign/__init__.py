"""Reads the foreign pods that wait for GPUs, and their gangs."""
