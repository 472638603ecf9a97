"""The envelopes of lists and watch events."""

from __future__ import annotations

import msgspec


class ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    continue_: str = msgspec.field(name="continue", default="")


class List(msgspec.Struct):
    """A page of a list; the objects are decoded one by one."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class BareMeta(msgspec.Struct, rename="camel"):
    """The metadata by which bookmarks, deletions, unreadable objects and those in a list of metadata are known."""

    resource_version: str
    uid: str = ""
    namespace: str = ""
    name: str = ""


class Bare(msgspec.Struct):
    """An object of which only the metadata is read."""

    metadata: BareMeta


METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io, application/json"
"""The media type of a list whose objects have only their metadata."""

decode_list = msgspec.json.Decoder(List).decode
decode_event = msgspec.json.Decoder(WatchEvent).decode
decode_bare = msgspec.json.Decoder(Bare).decode
