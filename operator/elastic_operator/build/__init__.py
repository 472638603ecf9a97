"""The Kubernetes objects of a job as plain dicts, and the reader of a pod's log. Pure: nothing is read or sent.

pod             a pod from the user's template: metadata, labels, annotations, place, environment
torchrun_environment, torchrun_group    what only pods of the mode Torchrun have
elastic_pod, launch, python     what only pods of the mode Elastic have; its first command; its choice of a python
wrapper         the process with id 1
service, network_policy, resource_quota     the other objects
names, request  names of objects; the settings for pods
traceback       why a pod failed, from its log
"""
