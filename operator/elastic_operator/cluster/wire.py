"""What lists and watches look like around the objects that they bring."""

from __future__ import annotations

import msgspec


class ListMeta(msgspec.Struct, rename="camel"):
    """metadata of a list."""

    resource_version: str
    continue_: str = msgspec.field(name="continue", default="")


class List(msgspec.Struct):
    """A page of a list; the objects are decoded one by one."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class BareMeta(msgspec.Struct, rename="camel"):
    """What bookmarks, deletions and unreadable objects are known by."""

    resource_version: str
    uid: str = ""
    namespace: str = ""
    name: str = ""


class Bare(msgspec.Struct):
    """An object of which only that is read."""

    metadata: BareMeta


decode_list = msgspec.json.Decoder(List).decode
decode_event = msgspec.json.Decoder(Event).decode
decode_bare = msgspec.json.Decoder(Bare).decode
