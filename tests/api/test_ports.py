"""Jobs on the node's network have ports of their own, and all others the ones that are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.ports import declared_ports, master_port, status_port
from elastic_worker.contract import MASTER_PORT, ROLE_MASTER, ROLE_WORKER, STATUS_PORT
from tests.plan.jobs import TEMPLATE, make_spec

ON_NODE = {"spec": {**TEMPLATE["spec"], "hostNetwork": True}}


@pytest.mark.parametrize("template", [TEMPLATE, {"spec": {**TEMPLATE["spec"], "hostNetwork": False}}])
def test_a_job_with_a_network_of_its_own_has_the_ports_of_all_and_declares_none(template):
    port = master_port("uid", make_spec(template=template))
    assert port == MASTER_PORT
    assert [status_port(port, role) for role in (ROLE_MASTER, ROLE_WORKER)] == [STATUS_PORT, STATUS_PORT]
    assert [declared_ports(port, ROLE_MASTER, is_elastic=mode) for mode in (True, False)] == [(), ()]


@given(one=st.uuids(), other=st.uuids())
def test_on_the_nodes_network_two_jobs_share_all_of_their_ports_or_none(one, other):
    spec = make_spec(template=ON_NODE)
    ours, theirs = (master_port(str(uid), spec) for uid in (one, other))
    each = [{port, status_port(port, ROLE_MASTER), status_port(port, ROLE_WORKER)} for port in (ours, theirs)]
    assert all(20_000 <= port < 28_000 for ports in each for port in ports)
    assert [len(ports) for ports in each] == [3, 3]
    assert each[0] == each[1] or not each[0] & each[1]
    assert master_port(str(one), spec) == ours


def test_the_ports_of_a_job_are_always_the_same():
    """A successor of the operator, of a later release, must find the same."""
    assert master_port("5f0c9c0e-9f5c-4c8e-a7c5-2f1b6d1f0a11", make_spec(template=ON_NODE)) == 25_212


def test_only_the_master_declares_ports_and_what_it_listens_on():
    assert declared_ports(20_004, ROLE_MASTER, is_elastic=True) == (20_004, 20_005)
    assert declared_ports(20_004, ROLE_MASTER, is_elastic=False) == (20_004,)
    assert declared_ports(20_004, ROLE_WORKER, is_elastic=True) == ()


def test_the_masters_template_decides():
    spec = make_spec(template=TEMPLATE, master={"template": ON_NODE})
    assert master_port("uid", spec) != MASTER_PORT
    assert master_port("uid", make_spec(template=ON_NODE, master={"template": TEMPLATE})) == MASTER_PORT
