"""Pods of a training job as processes of this machine, with the operator's variables, without an operator."""
