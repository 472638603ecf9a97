"""The Kubernetes objects of a job as plain dicts, and the reader of a pod's log. Pure: nothing is read or sent."""
