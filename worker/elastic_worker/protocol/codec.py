"""Encodes messages as keys of a JSON object, and decodes them.

A line (`wire`) carries one JSON object, which may hold several messages. Each message has a key of its own, and its
`shape` says where its fields are:

    VALUE    the first field is the value of the key, the others are beside the key
    BESIDE   all fields are beside the key, whose value is 1
    INSIDE   all fields are in an object under the key

In JSON a field has its name in camelCase, or the one given by `sent_as`. A field that is None is left out, unless it is
the value of the key. A field that is a dataclass is encoded as an object; in the shape INSIDE its fields are put among
those of the message. Releases differ (103): unknown keys are ignored, missing fields have their defaults.
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
SCALARS: Mapping[str, Callable[[Any], Any]] = {"int": int, "float": float, "bool": bool, "str": str}
"""Converters by a field's annotation, since other releases may send 1 for True. None is never converted."""
_WIRE_NAME = "wire"


@dataclass(frozen=True)
class Message:
    """One message. Its class gives the `key` in JSON, and the `shape`: where its fields are."""

    key: ClassVar[str]
    shape: ClassVar[str] = VALUE

    def to_json(self) -> dict[str, Any]:
        """Encode the message as the keys that it adds to a line."""
        values = _encode(self, {self.key})
        if self.shape == INSIDE:
            return {self.key: values}
        return values if self.key in values else {self.key: 1, **values}

    @classmethod
    def from_json(cls: type[M], line: Json) -> M:
        """Decode the message from a line that has its key.

        Raises AttributeError, KeyError, TypeError or ValueError (`wire.UNREADABLE`) if the line does not fit the class.
        """
        return _decode(cls, line[cls.key] if cls.shape == INSIDE else line)


def to_line(*messages: Message) -> dict[str, Any]:
    """Encode several messages as one line."""
    return {key: value for message in messages for key, value in message.to_json().items()}


def sent_as(wire_name: str) -> Mapping[str, str]:
    """Return the metadata of a field whose name in JSON is another one than in Python, as earlier releases use it."""
    return {_WIRE_NAME: wire_name}


def wire_fields(kind: type[Any]) -> dict[str, Field[Any]]:
    """Return the fields of a message by their names in JSON, in the order of the class."""
    by_name = {each.name: each for each in fields(kind)}
    in_json: dict[str, Field[Any]] = {}
    for slot in _layout(kind):
        in_json.update(wire_fields(slot.part) if slot.part and slot.is_spread else {slot.wire: by_name[slot.name]})
    return in_json


class _Slot(NamedTuple):
    """Where a field is: its `name` in the class, and its name in JSON, `wire`. `part`: its type, if a dataclass."""

    name: str
    wire: str
    default: Any
    convert: Callable[[Any], Any] | None
    part: type[Any] | None
    is_spread: bool

    def read(self, values: Json) -> Any:
        if self.part and self.is_spread:
            return _decode(self.part, values)
        if self.wire not in values:
            if self.default is MISSING:
                raise KeyError(f"{self.wire} is missing")
            return self.default
        value = values[self.wire]
        return value if self.convert is None or value is None else self.convert(value)


def _encode(message: Any, also_none: Container[str] = ()) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for slot in _layout(type(message)):
        value = getattr(message, slot.name)
        if value is None and slot.wire not in also_none:
            continue
        if slot.part and value is not None:
            value = _encode(value)
        if slot.is_spread:
            values.update(value)
        else:
            values[slot.wire] = value
    return values


def _decode(kind: type[T], values: Json) -> T:
    return kind(**{slot.name: slot.read(values) for slot in _layout(kind)})


def _layout(kind: type[Any]) -> list[_Slot]:
    if kind not in _layouts:
        own = fields(kind)
        names = [each.metadata.get(_WIRE_NAME) or _camel(each.name) for each in own]
        shape = getattr(kind, "shape", None)
        if shape == VALUE:
            names[:1] = [kind.key]
        _layouts[kind] = [_slot(kind, each, name, shape) for each, name in zip(own, names if own else ())]
    return _layouts[kind]


_layouts: dict[type[Any], list[_Slot]] = {}


def _slot(kind: type[Any], each: Field[Any], wire: str, shape: str | None) -> _Slot:
    type_name = str(each.type).replace(" | None", "")
    found = vars(sys.modules[kind.__module__]).get(type_name)
    part = found if isinstance(found, type) and is_dataclass(found) else None
    convert = SCALARS.get(type_name) if part is None else partial(_decode, part)
    return _Slot(each.name, wire, each.default, convert, part, is_spread=part is not None and shape == INSIDE)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
