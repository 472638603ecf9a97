"""The part of protobuf's wire format that the device plugin's few messages need, so that no code is generated.

A message is bytes; fields are varints (wire type 0) and length-delimited values (wire type 2).
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT = 0
DELIMITED = 2


def varint(number: int) -> bytes:
    """Encode a number of at least 0: seven bits in a byte, the lowest first; the top bit says that more follow."""
    if number < 0:
        raise ValueError(f"{number} is negative; the messages here have no such numbers")
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field(number: int, value: bytes | str | bool) -> bytes:
    """Encode field `number` of a message: a nested message or text, or a bool."""
    if isinstance(value, bool):
        return varint(number << 3 | VARINT) + varint(int(value))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | DELIMITED) + varint(len(data)) + data


def text_map(number: int, items: dict[str, str]) -> bytes:
    """Encode field `number` of type map<string, string>."""
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in items.items())


def messages(data: bytes, number: int) -> list[bytes]:
    """The values of the repeated length-delimited field `number`. Raises ValueError if `data` is no message."""
    return [value for found, value in _fields(data) if found == number and isinstance(value, bytes)]


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        number, wire_type = key >> 3, key & 7
        value, position = _read_varint(data, position)
        if wire_type == VARINT:
            yield number, value
        elif wire_type == DELIMITED:
            end = position + value
            if end > len(data):
                raise ValueError(f"field {number} says {value} bytes, there are {len(data) - position}")
            yield number, data[position:end]
            position = end
        else:
            raise ValueError(f"field {number} has wire type {wire_type}, which these messages do not use")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position
    raise ValueError("a number ends in the middle")
