"""What pods say: their logs and their launchers' status. Asked fairly, and never taken on trust."""
