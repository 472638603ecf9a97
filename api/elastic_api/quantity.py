"""Kubernetes quantities ("100m", "1.5", "1Gi", "2e3") as integers: thousandths of a core for cpu, whole units else.

The grammar and the rounding are the API server's: fractions of the unit round away from zero, and nothing is larger
than 2**63 - 1. Integers only, so that sums over a cluster are exact.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

MAX = 2**63 - 1
"""Larger quantities are read as this one, as the API server does."""
REMEDY = "a number with an optional suffix, such as 1, 500m or 16Gi"
"""The remedy in error messages."""
_MAX_LENGTH = 64
_MAX_EXPONENT = 40
"""With 10**40 any number exceeds MAX, and with 10**-40 any number rounds to one unit; larger exponents need not be
computed.
"""

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE]|))"
)
_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity; the message names the text and the remedy."""


def amount(resource: str, quantity: object) -> int:
    """The amount of `resource` in a quantity, in the unit in which this operator counts it.

    Args:
        resource: Name as in a pod's requests; `cpu` is counted in thousandths of a core, all else in whole units.
        quantity: The JSON value: a string, or a number as YAML authors write it (`nvidia.com/gpu: 1`).

    Raises:
        QuantityError: it is no quantity.
    """
    return milli(quantity) if resource == "cpu" else units(quantity)


def units(quantity: object) -> int:
    """A quantity in whole units (bytes, GPUs), rounded away from zero. Raises QuantityError."""
    return _scaled(_text(quantity), 1)


def milli(quantity: object) -> int:
    """A quantity in thousandths (of a core), rounded away from zero. Raises QuantityError."""
    return _scaled(_text(quantity), 1000)


def _text(quantity: object) -> str:
    if isinstance(quantity, str):
        return quantity
    if isinstance(quantity, int | float):
        return repr(quantity)  # a truth value becomes a word, which is no quantity
    raise _error(quantity)


@lru_cache(maxsize=4096)
def _scaled(text: str, scale: int) -> int:
    value = _exact(text) * scale
    rounded = -(-abs(value.numerator) // value.denominator)
    return min(rounded, MAX) * (-1 if value < 0 else 1)


def _exact(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text.strip()) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise _error(text)
    if match["exponent"] is None:
        return Fraction(match["number"]) * _SUFFIXES[match["suffix"]]
    exponent = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, int(match["exponent"])))
    return Fraction(match["number"]) * Fraction(10) ** exponent


def _error(quantity: object) -> QuantityError:
    shown = repr(quantity)
    shown = shown if len(shown) <= _MAX_LENGTH else shown[:_MAX_LENGTH] + "..."
    return QuantityError(f"{shown} is no quantity: it must be {REMEDY}")
