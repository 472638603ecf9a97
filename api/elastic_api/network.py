"""An administrator's network rules for the pods of jobs, as a NetworkPolicy has them.

Only their form is checked. The API server checks selectors and blocks of addresses.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from elastic_api.job import ApiModel


class LabelSelector(ApiModel):
    """Pods or namespaces by label; an empty one selects all."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[dict[str, Any], ...] | None = None


class IPBlock(ApiModel):
    """Addresses."""

    cidr: str
    except_: tuple[str, ...] | None = Field(None, alias="except")


class Peer(ApiModel):
    """The other end of a connection: pods, namespaces or addresses."""

    pod_selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None
    ip_block: IPBlock | None = None


def _meant(peer: Peer) -> Peer:
    selects = peer.pod_selector is not None or peer.namespace_selector is not None
    if peer.ip_block is None and not selects:
        raise ValueError("must have podSelector, namespaceSelector or ipBlock")
    if peer.ip_block is not None and selects:
        raise ValueError("must have either ipBlock or selectors; write two peers")
    return peer


Peers = tuple[Annotated[Peer, AfterValidator(_meant)], ...]


class PolicyPort(ApiModel):
    """A port, by number or name, or a range of them."""

    port: int | str | None = None
    end_port: int | None = None
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class IngressRule(ApiModel):
    """Who may connect to the pods, and to which ports; absent: anybody, any."""

    from_: Peers | None = Field(None, alias="from")
    ports: tuple[PolicyPort, ...] | None = None


class EgressRule(ApiModel):
    """What the pods may connect to, and to which ports; absent: anything, any."""

    to: Peers | None = None
    ports: tuple[PolicyPort, ...] | None = None
