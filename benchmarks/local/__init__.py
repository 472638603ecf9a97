"""Pods of a training job as processes of this machine, told what the operator tells pods. The caller plays it."""
