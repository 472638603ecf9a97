"""Runs one training in each way: one device, DataParallel, DDP by torchrun and mp.spawn, both modes, the library."""
