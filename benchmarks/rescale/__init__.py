"""What a change of size costs a script that knows nothing of us (stock and tuned torchrun, Elastic mode) and one that
uses the library."""
