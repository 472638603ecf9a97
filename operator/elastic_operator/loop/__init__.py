"""The loop of passes: wake, read, decide, write. Only this package and `cluster` change the world."""
