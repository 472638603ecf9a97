"""Reasons that users read, and counts and names in their sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

MAX_NAMED = 5
"""The most names of a kind in a message; the message counts the others."""


class Reason(NamedTuple):
    """The reason for a state: one CamelCase word, as the reason of a condition or of an event, and a sentence."""

    code: str
    message: str


def pods(count: int) -> str:
    """The number of pods, in words."""
    return "1 pod" if count == 1 else f"{count} pods"


def pods_are(count: int) -> str:
    """The number of pods with its verb, as the begin of a sentence."""
    return f"{pods(count)} {'is' if count == 1 else 'are'}"


def gpus(count: int) -> str:
    """The number of GPUs, in words."""
    return "1 GPU" if count == 1 else f"{count} GPUs"


def sentence(text: str) -> str:
    """The text with a period at its end, so that another sentence can follow; "" stays "".

    Texts of Kubernetes and of users may end in any way.
    """
    text = text.rstrip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def joined(*sentences: str) -> str:
    """One text of these sentences, without the empty ones."""
    return " ".join(filter(None, map(sentence, sentences)))


def names_of(named: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the things with these uids, each once. `named` maps uid to name."""
    return tuple(sorted({*named.values()}))


def listed(names: Sequence[str], most: int = MAX_NAMED) -> str:
    """The names, the first few of them spelled out."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
