"""The Kubernetes objects of a job as plain dicts, and what a pod's log tells. Pure: nothing is read or sent."""
