"""What elastic training does on the GPUs of one machine, in ten minutes: `make gpu-report`."""
