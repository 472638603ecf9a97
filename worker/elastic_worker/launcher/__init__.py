"""The first process of a training pod: starts the training processes that the coordinator asks for."""
