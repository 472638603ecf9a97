"""Messages as keys of JSON objects.

A line carries one JSON object (`wire`), which may hold several messages: each has a key of its own. The `shape` of a
message says where its fields stand: the first one as the VALUE of the key and the others beside it, all of them BESIDE
the key, whose value is 1, or all of them INSIDE an object under the key. Their names are in camelCase there. A field
that is None is left out, but as a value. Releases differ (103): unknown keys are passed over, missing fields have their
defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

Json = Mapping[str, Any]
M = TypeVar("M", bound="Message")
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
        told = {at.wire: getattr(self, at.name) for at in _layout(type(self))}
        if self.shape == INSIDE:
            return {self.key: told}
        beside = {name: value for name, value in told.items() if name == self.key or value is not None}
        return beside if self.key in beside else {self.key: 1, **beside}

    @classmethod
    def from_json(cls: type[M], line: Json) -> M:
        """From a line that has the key. Raises AttributeError, KeyError, TypeError, ValueError for what is none."""
        values = line[cls.key] if cls.shape == INSIDE else line
        return cls(**{at.name: at.read(values) for at in _layout(cls)})


def to_line(*said: Message) -> dict[str, Any]:
    """Several messages in one line."""
    return {key: value for message in said for key, value in message.to_json().items()}


class _At(NamedTuple):
    """Where a field stands: its `name` in the class, and under which key in JSON."""

    name: str
    wire: str
    default: Any
    convert: Callable[[Any], Any] | None

    def read(self, values: Json) -> Any:
        if self.wire not in values:
            if self.default is MISSING:
                raise KeyError(f"{self.wire} is missing")
            return self.default
        value = values[self.wire]
        return value if self.convert is None or value is None else self.convert(value)


def wire_names(kind: type[Message]) -> list[str]:
    """The keys under which its fields stand, in their order."""
    return [at.wire for at in _layout(kind)]


def _layout(kind: type[Any]) -> list[_At]:
    if kind not in _layouts:
        own = fields(kind)
        names = [_camel(each.name) for each in own]
        if kind.shape == VALUE:
            names[:1] = [kind.key]
        _layouts[kind] = [
            _At(each.name, name, each.default, SIMPLE.get(str(each.type).replace(" | None", "")))
            for each, name in zip(own, names if own else ())
        ]
    return _layouts[kind]


_layouts: dict[type[Any], list[_At]] = {}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
