"""The network policies of a cluster for the pods of one node, as a ruleset for nft: objects in, text out.

The rules apply where packets are forwarded. There, kube-proxy has replaced a Service's address by a pod's, and packets
from a node to its own pods (kubelet's probes) do not pass. A packet between two pods of the node has to pass both pods'
rules; between nodes, the sender's rules on its node and the receiver's on the other. A packet that is not allowed is
dropped, which differs from all other errors: a closed port refuses. Existing connections outlive a policy that does not
allow them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = Mapping[str, Any]

TABLE = "network_policies"
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Direction:
    """The keywords of one direction in a policy and in a rule. `own` is the side of the selected pod."""

    policy_type: str
    rules: str
    peers: str
    own: str
    other: str


INGRESS = Direction(policy_type="Ingress", rules="ingress", peers="from", own="daddr", other="saddr")
EGRESS = Direction(policy_type="Egress", rules="egress", peers="to", own="saddr", other="daddr")


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods that have their own address, and the labels of the namespaces."""

    items: Sequence[Object]
    namespace_labels: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, pods: Iterable[Object], namespaces: Iterable[Object]) -> Pods:
        """The pods in the order of their addresses, without those in their node's network and those that have ended."""
        with_address = [pod for pod in pods if _has_own_address(pod)]
        labels = {each["metadata"]["name"]: _labels(each) for each in namespaces}
        return cls(items=sorted(with_address, key=_address), namespace_labels=labels)

    def meant(self, peer: Object, *, namespace: str) -> list[Object]:
        """The pods that a peer of a policy in `namespace` selects."""
        of_namespaces = peer.get("namespaceSelector")
        found = []
        for pod in self.items:
            own = pod["metadata"]["namespace"]
            near = own == namespace if of_namespaces is None else self._selects(of_namespaces, own)
            if near and matches(peer.get("podSelector") or {}, _labels(pod)):
                found.append(pod)
        return found

    def _selects(self, selector: Object, namespace: str) -> bool:
        return namespace in self.namespace_labels and matches(selector, self.namespace_labels[namespace])


def ruleset(node: str, *, pods: Iterable[Object], namespaces: Iterable[Object], policies: Iterable[Object]) -> str:
    """The input of `nft -f` that replaces all rules for the pods of `node` at once."""
    known = Pods.of(pods, namespaces)
    in_order = sorted(policies, key=lambda policy: (policy["metadata"]["namespace"], policy["metadata"]["name"]))
    chains, verdicts = [], []
    for direction in (EGRESS, INGRESS):
        entries = []
        for pod in known.items:
            selecting = [policy for policy in in_order if _isolates(policy, pod, direction)]
            if pod["spec"].get("nodeName") == node and selecting:
                chain = f"{direction.rules}_{_address(pod).replace('.', '_')}"
                chains.append(_chain(chain, pod, selecting, known, direction))
                entries.append(f"{_address(pod)} : jump {chain}")
        if entries:
            verdicts.append(f"ip {direction.own} vmap {{ {', '.join(entries)} }}")
    return f"add table ip {TABLE}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n{''.join(chains)}{_hook(verdicts)}}}\n"


def matches(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects `labels`; an empty one selects all."""
    equal = all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())
    return equal and all(_holds(each, labels) for each in selector.get("matchExpressions") or [])


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    return {
        "In": key in labels and labels[key] in values,
        "NotIn": key not in labels or labels[key] not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]


def _hook(verdicts: Sequence[str]) -> str:
    rules = [
        "type filter hook forward priority filter; policy accept;",
        "ct state established,related accept",
        *verdicts,
    ]
    return _block("forward", rules)


def _chain(name: str, pod: Object, policies: Sequence[Object], pods: Pods, direction: Direction) -> str:
    """The chain of one pod's incoming or outgoing packets: it returns those that a rule of a policy allows."""
    # A pod may always connect to itself, for example through its own Service.
    allowed = [f"ip {direction.other} {_address(pod)} return"]
    for policy in policies:
        for rule in policy["spec"].get(direction.rules) or []:
            allowed += [
                f"{match} return".lstrip()
                for match in _matches_of(rule, pod, pods, direction, namespace=policy["metadata"]["namespace"])
            ]
    return _block(name, [*dict.fromkeys(allowed), "drop"])


def _matches_of(rule: Object, pod: Object, pods: Pods, direction: Direction, *, namespace: str) -> Iterator[str]:
    """The matches of the rule, one for each kind of peer and port; "" matches every packet."""
    peers = rule.get(direction.peers) or []
    others = [other for peer in peers if "ipBlock" not in peer for other in pods.meant(peer, namespace=namespace)]
    blocks = [_block_match(peer["ipBlock"], direction) for peer in peers if "ipBlock" in peer]
    addresses = _addresses_match(others, direction)
    for port in rule.get("ports") or [None]:
        if port is not None and direction is EGRESS and isinstance(port.get("port"), str):
            yield from _named_at_others(port, others if peers else pods.items)
            continue
        wanted = "" if port is None else _port_match(port, pod)
        if wanted is None:
            continue
        for match in [*addresses, *blocks] if peers else [""]:
            yield " ".join(filter(None, (match, wanted)))


def _addresses_match(others: Sequence[Object], direction: Direction) -> list[str]:
    addresses = ", ".join(dict.fromkeys(_address(other) for other in others))
    return [f"ip {direction.other} {{ {addresses} }}"] if addresses else []


def _block_match(block: Object, direction: Direction) -> str:
    left_out = ", ".join(block.get("except") or [])
    without = f" ip {direction.other} != {{ {left_out} }}" if left_out else ""
    return f"ip {direction.other} {block['cidr']}{without}"


def _port_match(port: Object, pod: Object) -> str | None:
    """The match of a port; None if the pod has no port of the given name."""
    protocol, number = port.get("protocol", "TCP").lower(), port.get("port")
    if isinstance(number, str):
        number = _named_port(pod, number, protocol)
        return None if number is None else f"{protocol} dport {number}"
    if number is None:
        return f"meta l4proto {protocol}"
    return f"{protocol} dport {number}-{port['endPort']}" if "endPort" in port else f"{protocol} dport {number}"


def _named_at_others(port: Object, others: Iterable[Object]) -> Iterator[str]:
    """Yield the matches of a named port, whose number may differ for each destination pod."""
    for other in others:
        wanted = _port_match(port, other)
        if wanted is not None:
            yield f"ip {EGRESS.other} {_address(other)} {wanted}"


def _named_port(pod: Object, name: str, protocol: str) -> int | None:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or []:
            if port.get("name") == name and port.get("protocol", "TCP").lower() == protocol:
                return int(port["containerPort"])
    return None


def _isolates(policy: Object, pod: Object, direction: Direction) -> bool:
    """Whether the policy applies to the pod in this direction. The API server fills in missing types of policies."""
    same = policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
    applies = direction.policy_type in policy["spec"]["policyTypes"]
    return same and applies and matches(policy["spec"].get("podSelector") or {}, _labels(pod))


def _has_own_address(pod: Object) -> bool:
    ended = pod.get("status", {}).get("phase") in ENDED
    return not ended and not pod["spec"].get("hostNetwork") and bool(pod.get("status", {}).get("podIP"))


def _address(pod: Object) -> str:
    return str(pod["status"]["podIP"])


def _labels(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _block(name: str, lines: Iterable[str]) -> str:
    return f"  chain {name} {{\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"
