"""The words of a job's status."""

from typing import get_type_hints

from elastic_api.status import GRANT_SIZE_REASONS, JobStatus, SizeReason, StatusFields

JOB_SIZE_REASONS = frozenset({SizeReason.SUSPENDED, SizeReason.CHANGED_TOO_OFTEN, SizeReason.SCALE_UP_FAILED})
"""The reasons that the job's own state may have; a grant may have them, too."""


def test_each_reason_for_a_size_is_either_the_grants_or_the_jobs_own() -> None:
    assert sorted([*GRANT_SIZE_REASONS, *JOB_SIZE_REASONS]) == sorted(SizeReason)


def test_each_field_of_a_status_has_its_type_where_fields_are_edited() -> None:
    hints = get_type_hints(JobStatus)
    assert get_type_hints(StatusFields) == {name: hints[name] for name in JobStatus.model_fields}
