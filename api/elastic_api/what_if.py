"""The annotation by which a suspended job asks what it would get, without a pod (160).

Its answer is `status.forecast`, and `status.queue` where it would wait. On a job that is not suspended, the annotation
means nothing.
"""

from __future__ import annotations

from elastic_api.job import GROUP

ANNOTATION_WHAT_IF = f"{GROUP}/what-if"
KEEP = "true"
"""The annotation's value on a job that somebody keeps."""
ONCE = "once"
"""The annotation's value on a job that is there for the question only: the operator deletes the job, in case its maker
does not."""
ONCE_SECONDS = 600
"""A job that asks once is deleted this long after its creation, if it is still suspended and never had a pod."""
