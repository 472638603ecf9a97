"""Mistakes in a job's spec, in words that the user can act on: field, value, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails

ABSENT = object()
"""The value of an absent field."""
_MAX_SHOWN_CHARACTERS = 64
_MAX_SHOWN_ERRORS = 8
_MAX_STEP = 320
"""Characters of one step of a path; the longest key that Kubernetes knows, a label's, has 317."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake: its place, the value there, and the remedy ("must be ...")."""

    path: Path
    remedy: str
    value: object = ABSENT

    @property
    def field(self) -> str:
        """The path as Kubernetes writes it: `spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]`."""
        return "".join(_step(part) for part in self.path).removeprefix(".")

    def __str__(self) -> str:
        shown = _shown(self.value)
        return f"{self.field}: {shown}: {self.remedy}" if shown else f"{self.field}: {self.remedy}"


class InvalidSpecError(ValueError):
    """A spec that cannot run; its text is the message of the job's condition."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__(_message(self.errors))


def field_errors(error: ValidationError, *, at: Path) -> list[FieldError]:
    """A pydantic error's parts, one for each field, with paths that begin with `at`."""
    found: dict[Path, FieldError] = {}
    for details in error.errors(include_url=False):
        path = (*at, *_without_alternatives(details["loc"]))
        value = ABSENT if details["type"] == "missing" else details["input"]
        found.setdefault(path, FieldError(path, _remedy(details), value))
    return list(found.values())


def _message(errors: tuple[FieldError, ...]) -> str:
    message = "; ".join(str(error) for error in errors[:_MAX_SHOWN_ERRORS])
    hidden = len(errors) - _MAX_SHOWN_ERRORS
    return f"{message}; and {hidden} more" if hidden > 0 else message


def _step(part: str | int) -> str:
    if isinstance(part, str) and len(part) > _MAX_STEP:
        part = part[:_MAX_SHOWN_CHARACTERS] + "..."
    return f"[{part}]" if isinstance(part, int) or "." in part or "/" in part else f".{part}"


def _shown(value: object) -> str:
    """A scalar as it would look in YAML. Of mappings and lists only their kind, because they may be of any depth."""
    if value is ABSENT:
        return ""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "..."


def _without_alternatives(loc: Path) -> Path:
    """`loc` without what pydantic appends for each alternative of nprocPerNode, the one field that has some."""
    return loc[:1] if loc[:1] == ("nprocPerNode",) else loc


_REMEDIES = {
    "missing": "must be present",
    "extra_forbidden": "must be absent: there is no such field; check its spelling and its indentation",
    "string_type": "must be a string; put a number or a truth value in quotes",
    "string_too_short": "must not be empty",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "string_pattern_mismatch": "must match {pattern}",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "string_too_long": "must be at most {max_length} characters long",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "value_error": "{error}",
}


def _remedy(details: ErrorDetails) -> str:
    if details["loc"][:1] == ("nprocPerNode",):
        return "must be an integer from 1 to 1024, or auto"
    remedy = _REMEDIES.get(details["type"])
    return remedy.format(**details.get("ctx", {})) if remedy else f"must be different: {details['msg']}"
