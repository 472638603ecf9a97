"""What a launcher has its warm parent import."""
