"""The local cluster enforces network policies as their documentation says: else nothing that is blocked would tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.lab import Lab, Team, two_teams
from tests.network.probing import (
    BLOCKED,
    OPEN,
    PORTS,
    REFUSED,
    address,
    attempts,
    attempts_of,
    policy,
    prober,
    restarts,
)

pytestmark = [pytest.mark.extended, pytest.mark.timeout(240)]

FIRST, SECOND = PORTS
CLOSED = 7999
OF_SERVER = {"matchLabels": {"prober": "server"}}
ALL_OPEN = {name: [OPEN, OPEN] for name in ("friend", "neighbour", "stranger")}
ALL_BLOCKED = {name: [BLOCKED, BLOCKED] for name in ALL_OPEN}


@dataclass(frozen=True)
class People:
    """A server on n2 and a neighbour beside it; on n1 a friend, and a stranger of another namespace."""

    near: Team
    far: Team

    def see(self, *ports: int) -> dict[str, list[str]]:
        """What comes of each one's connecting to ports of the server."""
        server = address(self.near, "server")
        places = [(server, port) for port in ports]
        pods = zip((self.near, self.near, self.far), ALL_OPEN, strict=True)
        return dict(zip(ALL_OPEN, attempts_of(pods, places), strict=True))

    def come_to_see(self, **outcomes: list[str]) -> None:
        """Until PORTS are seen so, by others as not at all: a policy takes a moment to reach the nodes."""
        wanted = {**ALL_BLOCKED, **outcomes}
        self.near.wait(f"the server to be seen as {wanted}", lambda: self.see(*PORTS) == wanted)


@pytest.fixture(scope="module")
def all_people(lab: Lab) -> Iterator[People]:
    with two_teams(lab) as (near, far):
        near.apply(prober("server", node="n2"), prober("friend", node="n1"), prober("neighbour", node="n2"))
        far.apply(prober("stranger", node="n1"))
        yield People(near, far)


@pytest.fixture
def people(all_people: People) -> Iterator[People]:
    """Without any policy."""
    for name in ("server", "friend", "neighbour"):
        address(all_people.near, name)
    address(all_people.far, "stranger")
    all_people.come_to_see(**ALL_OPEN)
    yield all_people
    all_people.near.kubectl("delete", "networkpolicies", "--all")


def test_without_policies_a_closed_port_refuses(people):
    assert people.see(FIRST, CLOSED) == {name: [OPEN, REFUSED] for name in ALL_OPEN}


def test_a_policy_without_rules_cuts_its_pods_off_and_no_others(people):
    people.near.apply(policy("nobody", selects=OF_SERVER, ingress=[]))
    people.come_to_see()
    assert attempts(people.near, "friend", [(address(people.near, "neighbour"), FIRST)]) == [OPEN]


def test_a_policy_lets_in_the_pods_it_names_at_the_port_it_names(people):
    friend = {"podSelector": {"matchLabels": {"prober": "friend"}}}
    allowed = {"from": [friend], "ports": [{"port": f"p{FIRST}"}]}
    nobody, friends = (
        policy("nobody", selects=OF_SERVER, ingress=[]),
        policy("friends", selects=OF_SERVER, ingress=[allowed]),
    )
    people.near.apply(nobody, friends)
    people.come_to_see(friend=[OPEN, BLOCKED])


def test_a_policy_lets_in_the_namespace_it_names_and_what_it_let_in_before_no_more(people):
    people.near.apply(policy("some", selects=OF_SERVER, ingress=[{"from": [{"podSelector": {}}]}]))
    people.come_to_see(friend=[OPEN, OPEN], neighbour=[OPEN, OPEN])
    of_far = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": people.far.name}}}
    people.near.apply(policy("some", selects=OF_SERVER, ingress=[{"from": [of_far], "ports": [{"port": SECOND}]}]))
    people.come_to_see(stranger=[BLOCKED, OPEN])


def test_a_pod_that_may_connect_to_one_address_only_still_answers_who_connects_to_it(people):
    near, server, friend = people.near, address(people.near, "server"), address(people.near, "friend")
    to_server = {"to": [{"ipBlock": {"cidr": f"{server}/32"}}]}
    near.apply(policy("one-way", selects={"matchLabels": {"prober": "friend"}}, egress=[to_server]))
    neighbour = (address(near, "neighbour"), FIRST)
    near.wait("the friend to be held back", lambda: attempts(near, "friend", [neighbour]) == [BLOCKED])
    assert attempts(near, "friend", [(server, FIRST)]) == [OPEN]
    assert attempts(people.far, "stranger", [(friend, FIRST)]) == [OPEN]


def test_a_probe_by_the_kubelet_and_a_connection_to_oneself_pass_every_policy(people):
    near = people.near
    near.apply(policy("nothing", ingress=[], egress=[]))
    people.come_to_see()
    probed = prober("probed", node="n2")
    probed["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": FIRST}, "periodSeconds": 1}
    near.apply(probed)
    own = address(near, "probed")
    near.wait("the nodes to follow", lambda: attempts(people.far, "stranger", [(own, FIRST)]) == [BLOCKED])
    assert attempts(near, "probed", [(own, FIRST)]) == [OPEN]


def test_a_node_that_was_off_enforces_again_and_an_agent_that_was_killed_goes_on(people, lab):
    near = people.near
    near.apply(policy("nobody", selects=OF_SERVER, ingress=[]))
    before = {pod: restarts(near, pod) for pod in ("server", "neighbour")}
    with lab.killed("n2"):
        pass
    near.wait("its pods to run again", lambda: all(restarts(near, pod) > before[pod] for pod in before))
    people.come_to_see()
    agent = lab.cluster.part("n2/policy-agent")
    agent.kill()
    near.kubectl("delete", "networkpolicies", "--all")
    assert people.see(FIRST) == {name: [BLOCKED] for name in ALL_OPEN}
    agent.restart()
    people.come_to_see(**ALL_OPEN)
