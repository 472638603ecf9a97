"""A snapshot as a file: JSON that a person can read, and from which the allocator decides exactly as it did.

The file is `{"kind": "Snapshot", "version": 1, "snapshot": {...}}`. Inside, the fields are those of
`plan.facts.snapshot.Snapshot` by their own names. A field with its default is left out. A change of what a field means
must raise the version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from elastic_operator.plan.facts.snapshot import Snapshot
from elastic_operator.tools.files import InputError, write_json

KIND = "Snapshot"
VERSION = 1


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    kind: Literal["Snapshot"]
    version: Literal[1]
    snapshot: Snapshot


def encode(snapshot: Snapshot) -> str:
    """The file's text; equal snapshots have equal texts."""
    return write_json({"kind": KIND, "version": VERSION, "snapshot": _plain(snapshot)})


def decode(document: Any, *, source: str) -> Snapshot:
    """The snapshot of a file's JSON. Raises InputError."""
    _refuse_other_files(document, source)
    try:
        snapshot = msgspec.convert(document, Document).snapshot
    except msgspec.ValidationError as error:
        raise InputError([f"{source}: is no snapshot: {_in_words(error)}"]) from None
    unknown = list(_unknown(document["snapshot"], snapshot, "snapshot"))
    if unknown:
        raise InputError(f"{source}: {field}: must be absent: there is no such field" for field in unknown)
    return snapshot


def schema() -> str:
    """The JSON Schema of the file."""
    described = msgspec.json.schema(Document)
    return write_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **described})


def _refuse_other_files(document: Any, source: str) -> None:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != KIND:
        remedy = "must be Snapshot, as `elastic-operator snapshot` writes it"
        raise InputError([f"{source}: kind: {kind!r:.64}: {remedy}"])
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        remedy = f"must be {VERSION}; take the snapshot with this version of elastic-operator"
        raise InputError([f"{source}: version: {version!r:.64}: {remedy}"])


def _in_words(error: msgspec.ValidationError) -> str:
    """The message with the path in front: `snapshot.jobs[0].created: expected a number, got a string`."""
    what, _, path = str(error).partition(" - at `$.")
    return f"{path.rstrip('`')}: {what}" if path else what


def _plain(value: Any) -> Any:
    """The value in JSON's own types: dataclasses without fields that have their defaults, sets as sorted lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(v) for f in dataclasses.fields(value) if (v := getattr(value, f.name)) != _default(f)}
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, frozenset | set):
        return [_plain(v) for v in sorted(value)]
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


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
