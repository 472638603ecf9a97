"""What a change of size costs a script that knows nothing of us: stock torchrun, tuned torchrun, Elastic mode."""
