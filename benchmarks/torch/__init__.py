"""The same training in each way: one device, DataParallel, DDP by torchrun and by mp.spawn, Elastic mode, library."""
