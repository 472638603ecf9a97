"""The words of a job's status."""

from typing import get_type_hints

from elastic_api.status import JobStatus, StatusFields


def test_each_field_of_a_status_has_its_type_where_fields_are_edited() -> None:
    hints = get_type_hints(JobStatus)
    assert get_type_hints(StatusFields) == {name: hints[name] for name in JobStatus.model_fields}
