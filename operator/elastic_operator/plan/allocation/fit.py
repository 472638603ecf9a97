"""kube-scheduler's requirements of a node that do not depend on the other pods on the node.

These are taints, the node selector and the required node affinity. The module also has the rule by which two host ports
collide. `node_board` says how much room is left. Whether a node is cordoned or not Ready does not matter here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elastic_operator.plan.facts.node import HostPort, Node, Taint
from elastic_operator.plan.facts.requirements import PodShape, Toleration

AVOIDED = "the job avoids it for now"
"""The misfit of a node whose kubelet refused pods of the job (137): it ends without an edit."""
_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,19})")
_INT64 = range(-(2**63), 2**63)


def misfit(shape: PodShape, node: Node) -> str:
    """Why pods of `shape` can never run on `node`, even if it is empty, in words; "" if they can."""
    barring = (taint for taint in node.taints if taint.keeps_away and not taint.node_state)
    taint = next((taint for taint in barring if not tolerated(taint, shape.tolerations)), None)
    if taint:
        return f"taint {taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
    for key, value in shape.node_selector.items():
        if node.labels.get(key) != value:
            return f"no label {key}={value}"
    if shape.affinity and not any(matches_term(term, node) for term in shape.affinity):
        return "node affinity"
    if node.name in shape.avoided_nodes:
        return AVOIDED
    return ""


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Whether one of the tolerations covers the taint (an empty effect or key covers all)."""
    return any(
        one.effect in ("", taint.effect)
        and one.key in ("", taint.key)
        and (one.operator == "Exists" or (one.operator == "Equal" and one.value == taint.value))
        for one in tolerations
    )


def matches_term(term: Mapping[str, Any], node: Node) -> bool:
    """Whether a nodeSelectorTerm selects the node: all its expressions and fields do; an empty term selects nothing."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    own_fields = {"metadata.name": node.name}
    return all(_matches(e, node.labels) for e in expressions) and all(_matches(f, own_fields) for f in fields)


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    operator = expression.get("operator")
    values: Sequence[str] = expression.get("values") or ()
    value = labels.get(expression["key"])
    if operator == "NotIn":
        return value not in values
    if operator == "DoesNotExist":
        return value is None
    if value is None:
        return False
    if operator == "In":
        return value in values
    if operator not in ("Gt", "Lt"):
        return operator == "Exists"
    own, bound = _integer(value), _integer(values[0]) if len(values) == 1 else None
    if own is None or bound is None:
        return False
    return own > bound if operator == "Gt" else own < bound


def _integer(text: str) -> int | None:
    """The number, as Go's strconv.ParseInt reads 64 bits; None if it is no such number."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + match[2])
    return number if number in _INT64 else None


def collide(wanted: Iterable[HostPort], held: Iterable[HostPort]) -> bool:
    """Whether a wanted host port is held: with the same protocol and port, and the same address. No address stands for
    all addresses.
    """
    held = list(held)
    return any(
        protocol == other_protocol and port == other_port and (ip == other_ip or not ip or not other_ip)
        for ip, protocol, port in wanted
        for other_ip, other_protocol, other_port in held
    )
