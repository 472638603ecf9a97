"""Wake, read, decide, apply. The only code beside `cluster` that changes the world."""
