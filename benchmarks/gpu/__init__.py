"""Measures elastic training on the GPUs of one machine, in ten minutes: `make gpu-report`."""
