"""`elastic-operator share`: the fair share of each of several policies, from amounts in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from elastic_api.invalid import FieldError, field_errors
from elastic_api.job import ApiModel
from elastic_operator.plan.allocation.fair_share import Claimant, divide
from elastic_operator.tools.files import InputError

MAX_GPUS = 2**31 - 1
"""More than any cluster has; the largest value of such a field in the API."""


def _whole(value: Any) -> Any:
    """2.0 counts as 2, as in JSON; any other value is passed on, and refused later if it is no integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_number(value: Any) -> bool:
    """Whether this is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def _weight(value: Any) -> Fraction:
    """Exactly the number that was written: 0.1 is a tenth."""
    if not _is_number(value) or value < 0:
        raise ValueError("must be a number, 0 or more")
    return Fraction(str(value))


def _epoch(value: Any) -> float:
    """Seconds since the epoch, of a number or an RFC 3339 time."""
    if _is_number(value):
        return float(value)
    remedy = "must be a number, or a time with its zone such as 2026-01-31T12:00:00Z"
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(remedy) from None
    if time.tzinfo is None:
        raise ValueError(remedy)
    return time.timestamp()


Gpus = Annotated[int, BeforeValidator(_whole), Field(strict=True, ge=0, le=MAX_GPUS)]


class ShareInput(ApiModel):
    """A policy that wants GPUs, with the fields of a `Claimant`. `limit` is the most in all, null for no limit."""

    name: str = Field(strict=True, min_length=1)
    requested: Gpus
    guaranteed: Gpus = 0
    limit: Gpus | None = None
    weight: Annotated[Fraction, BeforeValidator(_weight)] = Fraction(1)
    priority: Annotated[int, BeforeValidator(_whole), Field(strict=True)] = 0
    created: Annotated[float, BeforeValidator(_epoch)] = 0.0


class Division(ApiModel):
    """The GPUs to divide among these policies."""

    total: Gpus
    policies: list[ShareInput]


def share(document: Any, *, source: str) -> dict[str, Any]:
    """`{"shares": {name: GPUs}, "remaining": GPUs}` of a `{total, policies}` document. Raises InputError."""
    division = _read(document, source)
    shares, remaining = divide(division.total, [Claimant(**dict(policy)) for policy in division.policies])
    return {"shares": shares, "remaining": remaining}


def _read(document: Any, source: str) -> Division:
    if not isinstance(document, dict):
        raise InputError([f"{source}: must be a JSON object with total and policies, not {document!r:.64}"])
    try:
        division = Division.model_validate(document)
    except ValidationError as error:
        raise InputError(f"{source}: {mistake}" for mistake in field_errors(error, at=())) from None
    if namesakes := list(_namesakes(division)):
        raise InputError(f"{source}: {mistake}" for mistake in namesakes)
    return division


def _namesakes(division: Division) -> Iterator[FieldError]:
    first: dict[str, int] = {}
    for number, policy in enumerate(division.policies):
        earlier = first.setdefault(policy.name, number)
        if earlier != number:
            remedy = f"must be another name: policies[{earlier}] has this one"
            yield FieldError(("policies", number, "name"), remedy, policy.name)
