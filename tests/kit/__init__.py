"""What tests of all layers share."""
