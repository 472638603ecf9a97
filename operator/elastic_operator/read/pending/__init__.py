"""Reads the pods of others that wait for GPUs, and their gangs."""
