"""The words of a job's status."""

from elastic_api.status import GRANT_SIZE_REASONS, SizeReason

JOB_SIZE_REASONS = frozenset({SizeReason.SUSPENDED, SizeReason.CHANGED_TOO_OFTEN, SizeReason.SCALE_UP_FAILED})
"""The reasons that the job's own state may have; a grant may have them, too."""


def test_each_reason_for_a_size_is_either_the_grants_or_the_jobs_own() -> None:
    assert sorted([*GRANT_SIZE_REASONS, *JOB_SIZE_REASONS]) == sorted(SizeReason)
