"""What decisions are made from, and what is decided: frozen dataclasses, and the rules that all rooms share."""
