"""Pods of a training job as processes of this machine, with the operator's variables. The caller takes the operator's
place.
"""
