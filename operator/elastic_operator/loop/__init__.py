"""One pass after the other: wake, read, decide, write. Only this and `cluster` change the world."""
