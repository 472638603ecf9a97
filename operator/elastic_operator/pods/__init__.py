"""Reads from pods: their logs, and their launchers' status. Tenants are asked in turn, and no answer is believed
unchecked.
"""
