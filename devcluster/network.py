"""The cluster's network: the control plane's namespace with a bridge, and a namespace for each node, linked by veths.

Namespaces are held by anchor processes and have no names, so they end with their anchor and leave no mount behind;
links end with their namespace. The machine's network is not changed.
"""

from __future__ import annotations

from pathlib import Path

from devcluster import names, processes, shell
from devcluster.errors import DevclusterError
from devcluster.names import Layout

CONTROL_PLANE = "control-plane"
# Mounts made inside are not visible outside.
UNSHARE = ("unshare", "--net", "--mount", "--propagation", "private")


def anchor(layout: Layout, owner: str) -> int:
    """The pid that holds the namespaces of a node or of the control plane. Raises DevclusterError if it is not up."""
    pid = processes.leader(layout, f"{owner}/anchor")
    if pid is None:
        raise DevclusterError(f"{owner} of cluster {layout.name!r} is not running; start it first")
    return pid


def start_control_plane_network(layout: Layout) -> None:
    """Start the control plane's namespace, with the bridge to which nodes are connected."""
    pid = processes.start(layout, f"{CONTROL_PLANE}/anchor", ["sleep", "infinity"], before=UNSHARE)
    if _has_link(pid, names.BRIDGE):
        return
    inside(pid, "ip", "link", "set", "lo", "up")
    inside(pid, "ip", "link", "add", names.BRIDGE, "type", "bridge")
    inside(pid, "ip", "address", "add", f"{names.BRIDGE_ADDRESS}/{names.BRIDGE_PREFIX_LENGTH}", "dev", names.BRIDGE)
    inside(pid, "ip", "link", "set", names.BRIDGE, "up")
    inside(pid, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    # No DNS server runs here. Every query must be refused at once: one whose refusal is rate-limited takes 5 s, and
    # torch resolves the name of every peer.
    inside(pid, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0")


def start_node_network(layout: Layout, node: str, *, mount_script: Path) -> None:
    """Start a node's namespaces, with the mounts of `mount_script`, the link to the bridge, and its pods' routes."""
    number = names.node_number(node)
    bridge_side = anchor(layout, CONTROL_PLANE)
    node_side = processes.start(layout, f"{node}/anchor", ["sh", mount_script], before=UNSHARE)
    port, address = names.node_link(node), names.node_address(number)
    inside(bridge_side, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(node_side))
    inside(bridge_side, "ip", "link", "set", port, "master", names.BRIDGE, "up")
    inside(bridge_side, "ip", "route", "replace", names.node_pod_cidr(number), "via", address)
    inside(node_side, "ip", "link", "set", "lo", "up")
    inside(node_side, "ip", "address", "add", f"{address}/{names.BRIDGE_PREFIX_LENGTH}", "dev", "eth0")
    inside(node_side, "ip", "link", "set", "eth0", "up")
    inside(node_side, "ip", "route", "add", "default", "via", names.BRIDGE_ADDRESS)
    inside(node_side, "sysctl", "-qw", "net.ipv4.ip_forward=1")


def cut(layout: Layout, node: str) -> None:
    """Disconnect the node: packets are dropped without an error."""
    inside(anchor(layout, CONTROL_PLANE), "ip", "link", "set", names.node_link(node), "nomaster")


def heal(layout: Layout, node: str) -> None:
    """Reconnect the node."""
    inside(anchor(layout, CONTROL_PLANE), "ip", "link", "set", names.node_link(node), "master", names.BRIDGE)


def part(layout: Layout, node: str, other: str) -> None:
    """Drop all packets between two nodes and their pods; each still reaches all other addresses."""
    for one, peer in ((node, other), (other, node)):
        _set_rule(layout, one, f"parted-from-{peer}", f"ip saddr {_addresses(peer)} drop")


def join(layout: Layout, node: str, other: str) -> None:
    """Let packets pass between two nodes again."""
    for one, peer in ((node, other), (other, node)):
        _set_rule(layout, one, f"parted-from-{peer}", "")


def silence_dns(layout: Layout, node: str) -> None:
    """Drop DNS queries from the node and its pods."""
    rule = f"ip saddr {_addresses(node)} meta l4proto {{ tcp, udp }} th dport 53 drop"
    _set_rule(layout, CONTROL_PLANE, f"silent-dns-{node}", rule)


def refuse_dns(layout: Layout, node: str) -> None:
    """Refuse DNS queries again."""
    _set_rule(layout, CONTROL_PLANE, f"silent-dns-{node}", "")


def _addresses(node: str) -> str:
    """The addresses of the node and its pods, for a rule."""
    number = names.node_number(node)
    return f"{{ {names.node_address(number)}, {names.node_pod_cidr(number)} }}"


def _set_rule(layout: Layout, owner: str, table: str, rule: str) -> None:
    """Filter incoming packets of a node or of the control plane by this rule, in a separate table; "" removes it.

    Dropped packets give the sender no error, unlike with a filter on the sender's side.
    """
    made = [f"add table ip {table}", f"delete table ip {table}"]
    if rule:
        chain = f"type filter hook prerouting priority -400; {rule};"
        made.append(f"table ip {table} {{\nchain arriving {{ {chain} }}\n}}")
    inside(anchor(layout, owner), "nft", "\n".join(made))


def inside(pid: int, *command: str) -> str:
    """Run a command in the network and mount namespaces of an anchor; return its output."""
    return shell.run("nsenter", "--target", str(pid), "--net", "--mount", *command)


def _has_link(pid: int, link: str) -> bool:
    return shell.try_run("nsenter", "--target", str(pid), "--net", "ip", "link", "show", link)
