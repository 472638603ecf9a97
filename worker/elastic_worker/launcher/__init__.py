"""The first process of a training pod (as torchrun's agent): it starts the training processes for the coordinator."""
