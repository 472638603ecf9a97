"""What a step costs more with the library than without it, where the group never changes: both under plain torchrun."""
