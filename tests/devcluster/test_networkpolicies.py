"""What network policies become for nft: what a rule selects, by label, by address and by port."""

import re

import pytest

from devcluster.networkpolicies import matches, ruleset

NAMESPACES = [{"metadata": {"name": name, "labels": {"team": name}}} for name in ("red", "blue")]


def make_pod(address, *, namespace="red", node="n1", phase="Running", host_network=False, ports=(), **labels):
    return {
        "metadata": {"name": f"pod-{address}", "namespace": namespace, "labels": labels},
        "spec": {"nodeName": node, "hostNetwork": host_network, "containers": [{"name": "main", "ports": list(ports)}]},
        "status": {"phase": phase, "podIP": address},
    }


def make_policy(name="policy", *, namespace="red", selects=None, **rules):
    types = [kind.title() for kind in rules]
    spec = {"podSelector": selects or {}, "policyTypes": types, **rules}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def allowed(address, *pods, policies, direction="ingress"):
    """What may come to (or go from) the pod of n1 with this address; None where everything may."""
    rules = ruleset("n1", pods=pods, namespaces=NAMESPACES, policies=policies)
    chain = re.search(rf"chain {direction}_{address.replace('.', '_')} \{{\n(.*?)  \}}", rules, re.DOTALL)
    if chain is None:
        return None
    own, *lines, last = [line.strip() for line in chain[1].splitlines()]
    assert own.endswith(f" {address} return")
    assert last == "drop"
    return [line.removesuffix("return").strip() for line in lines]


POD = make_pod("10.0.0.1", role="server", ports=[{"name": "http", "containerPort": 80}])
PEER = make_pod("10.0.0.2", role="client", ports=[{"name": "http", "containerPort": 8080}])
FOREIGN = make_pod("10.0.0.3", namespace="blue", role="client")
ALL = (POD, PEER, FOREIGN)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchLabels": {"a": "1", "b": "1"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "In", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
    ],
)
def test_a_selector_selects_by_every_kind_of_term(selector, chosen):
    assert matches(selector, {"a": "1"}) is chosen


def test_pods_that_no_policy_selects_are_left_alone():
    clients = make_policy(selects={"matchLabels": {"role": "client"}}, ingress=[])
    assert allowed("10.0.0.1", *ALL, policies=[clients]) is None
    assert allowed("10.0.0.2", *ALL, policies=[clients]) == []
    assert allowed("10.0.0.3", *ALL, policies=[clients]) is None
    assert allowed("10.0.0.2", *ALL, policies=[clients], direction="egress") is None


def test_rules_are_for_pods_of_the_own_node_that_live_and_have_an_address_of_their_own():
    other = make_pod("10.0.0.4", node="n2")
    ended = make_pod("10.0.0.5", phase="Succeeded")
    of_node = make_pod("10.0.0.6", host_network=True)
    for pod in (other, ended, of_node):
        assert allowed(pod["status"]["podIP"], *ALL, pod, policies=[make_policy(ingress=[])]) is None
    all_near = make_policy(ingress=[{"from": [{"podSelector": {}}]}])
    assert allowed("10.0.0.1", *ALL, other, ended, of_node, policies=[all_near]) == [
        "ip saddr { 10.0.0.1, 10.0.0.2, 10.0.0.4 }"
    ]


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        ({}, [""]),
        ({"from": []}, [""]),
        ({"from": [{"podSelector": {"matchLabels": {"role": "client"}}}]}, ["ip saddr { 10.0.0.2 }"]),
        ({"from": [{"podSelector": {"matchLabels": {"role": "nobody"}}}]}, []),
        ({"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}, ["ip saddr { 10.0.0.3 }"]),
        (
            {"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"role": "client"}}}]},
            ["ip saddr { 10.0.0.2, 10.0.0.3 }"],
        ),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": 5}]},
            ["ip saddr 10.0.0.0/8 ip saddr != { 10.1.0.0/16 } tcp dport 5"],
        ),
        ({"ports": [{"port": 5, "endPort": 7, "protocol": "UDP"}]}, ["udp dport 5-7"]),
        ({"ports": [{"protocol": "SCTP"}]}, ["meta l4proto sctp"]),
        ({"ports": [{"port": "http"}, {"port": "nothing"}]}, ["tcp dport 80"]),
    ],
)
def test_who_is_let_in_to_what(rule, match):
    assert allowed("10.0.0.1", *ALL, policies=[make_policy(ingress=[rule])]) == match


def test_a_named_port_of_egress_is_that_of_each_pod_which_is_connected_to():
    to_http = make_policy(egress=[{"to": [{"podSelector": {}}], "ports": [{"port": "http"}]}])
    assert allowed("10.0.0.1", *ALL, policies=[to_http], direction="egress") == [
        "ip daddr 10.0.0.1 tcp dport 80",
        "ip daddr 10.0.0.2 tcp dport 8080",
    ]


def test_a_named_port_of_egress_to_anybody_is_that_of_each_pod_there_is():
    server = make_pod("10.0.0.4", namespace="blue", ports=[{"name": "http", "containerPort": 90}])
    to_http = make_policy(egress=[{"ports": [{"port": "http"}]}])
    assert allowed("10.0.0.2", PEER, server, policies=[to_http], direction="egress") == [
        "ip daddr 10.0.0.2 tcp dport 8080",
        "ip daddr 10.0.0.4 tcp dport 90",
    ]


def test_of_several_policies_each_adds_to_what_is_allowed():
    policies = [
        make_policy("a", ingress=[]),
        make_policy("b", ingress=[{"ports": [{"port": 1}]}]),
        make_policy("c", selects={"matchLabels": {"role": "server"}}, ingress=[{"ports": [{"port": 2}]}]),
        make_policy("d", namespace="blue", ingress=[{"ports": [{"port": 3}]}]),
    ]
    assert allowed("10.0.0.1", *ALL, policies=policies) == ["tcp dport 1", "tcp dport 2"]


def test_a_packet_must_pass_the_rules_of_its_sender_and_then_those_of_its_receiver():
    rules = ruleset("n1", pods=ALL, namespaces=NAMESPACES, policies=[make_policy(ingress=[], egress=[])])
    hook = rules[rules.index("chain forward") :]
    established = hook.index("ct state established,related accept")
    assert established < hook.index("ip saddr vmap { 10.0.0.1 : jump egress_10_0_0_1") < hook.index("ip daddr vmap {")
