"""What would be: who waits in which place, what a job would get that asks, and when jobs start (160, 161)."""
