"""What decisions are made from, and what is decided: frozen dataclasses without rules."""
