"""The annotation by which a suspended job asks what it would get, without a pod (160).

The answer is in `status.forecast`, and in `status.queue` if the job would wait. On a job that is not suspended, the
annotation has no effect.
"""

from __future__ import annotations

from elastic_api.job import GROUP

ANNOTATION_WHAT_IF = f"{GROUP}/what-if"
KEEP = "true"
"""The annotation's value on a job that is kept."""
ONCE = "once"
"""The annotation's value on a job that exists for the question only. The operator deletes the job if its creator does
not.
"""
ONCE_SECONDS = 600
"""A job that asks once is deleted this long after its creation, if it is still suspended and never had a pod."""
