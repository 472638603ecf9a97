"""Messages as keys of JSON objects.

A line carries one JSON object (`wire`), which may hold several messages: each has a key of its own. The `shape` of a
message says where its fields stand: the first one as the VALUE of the key and the others beside it, all of them BESIDE
the key, whose value is 1, or all of them INSIDE an object under the key. Their names are in camelCase there. A field
that is None is left out, but as a value. One that is a dataclass is an object, and INSIDE its fields stand among the
others. Releases differ (103): unknown keys are passed over, missing fields have their defaults.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

Json = Mapping[str, Any]
M = TypeVar("M", bound="Message")
T = TypeVar("T")
VALUE, BESIDE, INSIDE = "value", "beside", "inside"
SIMPLE: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool, "str": str}
"""Types of fields, as they are written, that are read as such, or are None: other releases may send 1 for True."""


@dataclass(frozen=True)
class Message:
    """One message. Its class says the `key`, and where its fields stand."""

    key: ClassVar[str]
    shape: ClassVar[str] = VALUE

    def to_json(self) -> dict[str, Any]:
        """As part of a line."""
        told = _told(self, {self.key})
        if self.shape == INSIDE:
            return {self.key: told}
        return told if self.key in told else {self.key: 1, **told}

    @classmethod
    def from_json(cls: type[M], line: Json) -> M:
        """From a line that has the key. Raises AttributeError, KeyError, TypeError, ValueError for what is none."""
        return _read(cls, line[cls.key] if cls.shape == INSIDE else line)


def to_line(*said: Message) -> dict[str, Any]:
    """Several messages in one line."""
    return {key: value for message in said for key, value in message.to_json().items()}


def wire_fields(kind: type[Any]) -> dict[str, Field[Any]]:
    """The fields by the keys under which they stand, in their order."""
    own = {each.name: each for each in fields(kind)}
    found: dict[str, Field[Any]] = {}
    for at in _layout(kind):
        found.update(wire_fields(at.part) if at.part and at.is_spread else {at.wire: own[at.name]})
    return found


class _At(NamedTuple):
    """Where a field stands: its `name` in the class, and under which key in JSON. `part`: the dataclass that it is."""

    name: str
    wire: str
    default: Any
    convert: Callable[[Any], Any] | None
    part: type[Any] | None
    is_spread: bool

    def read(self, values: Json) -> Any:
        if self.part and self.is_spread:
            return _read(self.part, values)
        if self.wire not in values:
            if self.default is MISSING:
                raise KeyError(f"{self.wire} is missing")
            return self.default
        value = values[self.wire]
        return value if self.convert is None or value is None else self.convert(value)


def _told(message: Any, also_none: Container[str] = ()) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for at in _layout(type(message)):
        value = getattr(message, at.name)
        if value is None and at.wire not in also_none:
            continue
        if at.part and value is not None:
            value = _told(value)
        if at.is_spread:
            told.update(value)
        else:
            told[at.wire] = value
    return told


def _read(kind: type[T], values: Json) -> T:
    return kind(**{at.name: at.read(values) for at in _layout(kind)})


def _layout(kind: type[Any]) -> list[_At]:
    if kind not in _layouts:
        own = fields(kind)
        names = [_camel(each.name) for each in own]
        shape = getattr(kind, "shape", None)
        if shape == VALUE:
            names[:1] = [kind.key]
        _layouts[kind] = [_at(kind, each, name, shape) for each, name in zip(own, names if own else ())]
    return _layouts[kind]


_layouts: dict[type[Any], list[_At]] = {}


def _at(kind: type[Any], each: Field[Any], wire: str, shape: str | None) -> _At:
    type_name = str(each.type).replace(" | None", "")
    found = vars(sys.modules[kind.__module__]).get(type_name)
    part = found if isinstance(found, type) and is_dataclass(found) else None
    convert = SIMPLE.get(type_name) if part is None else partial(_read, part)
    return _At(each.name, wire, each.default, convert, part, is_spread=part is not None and shape == INSIDE)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
