"""The report: one JSON file, and a table for docs/library.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.systems import SYSTEMS

FORMAT = 1
CHANGES = ("join", "join again", "leave", "kill")
WORDS = {system.name: system.words for system in SYSTEMS}
NOT_LEARNT = -1.0


def as_json(machine: Machine, told: Mapping[str, Mapping[str, Any]], *, made: str) -> dict[str, Any]:
    """The report as JSON. `told` is by the system's name; `made` is the time, in ISO 8601."""
    about = {"python": machine.python, "torch": machine.torch, "cuda": machine.cuda, "nccl": machine.nccl}
    cards = {"gpus": list(machine.gpus), "sharesACard": machine.shares_a_card, "pods": machine.most}
    return {"format": FORMAT, "made": made, "device": machine.device, **about, **cards, "systems": dict(told)}


def as_markdown(report: Mapping[str, Any]) -> str:
    """The table of a report from `as_json`. A dash stands for a missing figure, with the reason below the table."""
    lines = [
        _heading(report),
        "",
        _row("", "backend", "starts", *CHANGES, "steps done twice", "AMP", "memory"),
        _rule(),
    ]
    lines += [_system(name, told) for name, told in report["systems"].items()]
    errors = [f"* {WORDS[name]}: {told['error'].splitlines()[0]}" for name, told in _failed(report)]
    return "\n".join([*lines, *(["", *errors] if errors else [])]) + "\n"


def _heading(report: Mapping[str, Any]) -> str:
    cards = [f"{gpu['name']} ({gpu['gib']} GiB)" for gpu in report["gpus"]]
    where = f"{len(cards)} x {cards[0]}" if cards else "no GPU, gloo on the CPU"
    shared = ", all ranks on one card" if report["sharesACard"] else ""
    versions = f"torch {report['torch']}" + (f", NCCL {report['nccl']}" if report["nccl"] and cards else "")
    size = f"{report['pods'] - 1} to {report['pods']} ranks"
    return f"{where}{shared}; {versions}; {size}; {report['made']}. Seconds without a step of a survivor:"


def _system(name: str, told: Mapping[str, Any]) -> str:
    pauses = [_seconds(told["pauses"].get(change)) for change in CHANGES]
    again = str(max(told["again"].values())) if told["again"] else "-"
    return _row(WORDS[name], told["backend"], _seconds(told["start"]), *pauses, again, _amp(told), _memory(told))


def _amp(told: Mapping[str, Any]) -> str:
    """Whether the model has learnt in half precision."""
    if not told["losses"]:
        return "-"
    first, last = told["losses"]
    return f"{first:.3g} to {last:.3g}" if NOT_LEARNT not in (first, last) and last < first else "has not learnt"


def _memory(told: Mapping[str, Any]) -> str:
    """The memory of the card, if there is one: leftovers of a group would show there."""
    memory = told["memory"]
    if not memory:
        return "-"
    kind = "card" if memory["card in the end"] else "process"
    return f"{memory[f'{kind} at first']:.0f} to {memory[f'{kind} in the end']:.0f} MiB"


def _failed(report: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, told) for name, told in report["systems"].items() if told["error"]]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule() -> str:
    return "|" + "---|" * (len(CHANGES) + 6)
