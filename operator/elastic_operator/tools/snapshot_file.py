"""A snapshot as a file: readable JSON, from which a pass is decided exactly as it was.

The file is `{"kind": "ClusterSnapshot", "version": 13, "cluster": {...}}`. Inside, the fields are those of
`tools.cluster_snapshot` and of the facts in `plan.facts` by their own names; specs, statuses and PriorityClasses are as
in the API. A field with its default is left out, except in PriorityClasses. A time that never comes, infinity, is the
largest number that a double holds, since JSON has no infinity. A change of a field's meaning must raise the version.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from math import copysign, inf
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ValidationError

from elastic_api.invalid import field_errors
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot
from elastic_operator.tools.files import InputError, write_json

KIND = "ClusterSnapshot"
VERSION = 13
_OLD_KINDS = {"Snapshot": "which has the allocation only", "World": "of an older release"}
NEVER = sys.float_info.max
"""Stands for infinity, which JSON does not have."""


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    kind: Literal["ClusterSnapshot"]
    version: Literal[13]
    cluster: ClusterSnapshot


def encode(snapshot: ClusterSnapshot) -> str:
    """The file's text; equal snapshots have equal texts."""
    return write_json({"kind": KIND, "version": VERSION, "cluster": plain(snapshot)})


def decode(document: Any, *, source: str) -> ClusterSnapshot:
    """The snapshot in a file's JSON. Raises InputError."""
    _refuse_other_files(document, source)
    try:
        snapshot = msgspec.convert(_with_infinities(document), Document, dec_hook=_of_the_api).cluster
    except msgspec.ValidationError as error:
        raise InputError([f"{source}: is no snapshot: {_in_words(error)}"]) from None
    unknown = list(_unknown(document["cluster"], snapshot, "cluster"))
    if unknown:
        raise InputError(f"{source}: {field}: must be absent: there is no such field" for field in unknown)
    return snapshot


def schema() -> str:
    """The JSON Schema of the file."""
    described = msgspec.json.schema(Document, schema_hook=_described)
    return write_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **described})


def plain(value: Any) -> Any:
    """The value in JSON's own types: objects without fields that have their defaults, sets as sorted lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(v) for f in dataclasses.fields(value) if (v := getattr(value, f.name)) != _default(f)}
    if isinstance(value, BaseModel):
        return plain(value.model_dump(by_alias=True, exclude_defaults=True))
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, frozenset | set):
        return [plain(v) for v in sorted(value)]
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return copysign(NEVER, value) if value in (inf, -inf) else value


def _with_infinities(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_infinities(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_with_infinities(v) for v in value]
    return copysign(inf, value) if isinstance(value, float) and abs(value) == NEVER else value


def _of_the_api(kind: type, value: Any) -> Any:
    """A spec or status. Raises ValueError."""
    assert issubclass(kind, BaseModel), "msgspec knows all other types in a snapshot"
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ValueError("; ".join(map(str, field_errors(error, at=())))) from None


def _described(kind: type) -> dict[str, Any]:
    return {"type": "object", "description": f"{kind.__name__} as in the CRD."}


def _refuse_other_files(document: Any, source: str) -> None:
    kind = document.get("kind") if isinstance(document, dict) else None
    if isinstance(kind, str) and kind in _OLD_KINDS:
        what = f"version {document.get('version')!r:.64} of a snapshot, {_OLD_KINDS[kind]}"
        remedy = f"must be {KIND}; take it again, or read it with the release that wrote it"
        raise InputError([f"{source}: kind: {kind!r}: is {what}: {remedy}"])
    if kind != KIND:
        remedy = f"must be {KIND}, as `elastic-operator snapshot` writes it"
        raise InputError([f"{source}: kind: {kind!r:.64}: {remedy}"])
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        remedy = f"must be {VERSION}; take the snapshot with this version of elastic-operator"
        raise InputError([f"{source}: version: {version!r:.64}: {remedy}"])


def _in_words(error: msgspec.ValidationError) -> str:
    """The message with the path in front: `cluster.nodes[0].labels: expected an object, got a string`."""
    what, _, path = str(error).partition(" - at `$.")
    return f"{path.rstrip('`')}: {what}" if path else what


def _default(field: dataclasses.Field[Any]) -> Any:
    """The field's value if it is left out; for a required field an object that equals nothing."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _unknown(raw: Any, known: Any, path: str) -> Iterator[str]:
    """The file's fields that the snapshot does not have."""
    if dataclasses.is_dataclass(known) and not isinstance(known, type):
        fields = {field.name for field in dataclasses.fields(known)}
        for name, value in raw.items():
            if name in fields:
                yield from _unknown(value, getattr(known, name), f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    elif isinstance(known, Mapping):
        for key in known:
            yield from _unknown(raw[key], known[key], f"{path}.{key}")
    elif isinstance(known, tuple):
        for number, (value, item) in enumerate(zip(raw, known, strict=True)):
            yield from _unknown(value, item, f"{path}[{number}]")
