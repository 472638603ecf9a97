"""What pods say: their logs, and their launchers' status. Tenants are asked in turn, and never believed
without checks.
"""
