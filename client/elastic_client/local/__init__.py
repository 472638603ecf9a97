"""`run --local`: a job on this machine, in Elastic mode, without a cluster.

`plan` makes the job from the flags of `run`, `machine` knows the python and the GPUs, `place` lets `scale` find the run
from another terminal, `pod` is one launcher as a process, and `run` takes the operator's place: it starts and ends
pods, and writes the membership for the master.
"""
