"""What is derived from a cluster's name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster import names
from devcluster.errors import DevclusterError
from devcluster.names import Layout


@pytest.mark.parametrize("name", ["", "Dev", "1st", "a_b", "a/b", "-a", "a-", "a" * 21, "a\n"])
def test_a_name_that_would_break_a_path_is_refused_with_the_rule(name):
    with pytest.raises(DevclusterError, match=r"a-z, 0-9 and -"):
        names.check_name(name)


@given(name=st.from_regex(names.NAME_RULE, fullmatch=True))
def test_the_first_port_of_any_name_is_below_the_ephemeral_ports(name):
    assert 20000 <= names.first_port(names.check_name(name)) < 30000


def test_two_clusters_share_no_folder_cgroup_or_mark():
    one, other = Layout("dev"), Layout("tests")
    assert one.folder != other.folder
    assert one.cgroup("n1") != other.cgroup("n1")
    assert one.mark("n1/kubelet") != other.mark("n1/kubelet")


@pytest.mark.parametrize("number", [1, 2, 9, 10, 200])
def test_a_node_s_name_tells_its_number_and_its_addresses_are_its_own(number):
    assert names.node_number(names.node_name(number)) == number
    assert names.node_address(number) != names.BRIDGE_ADDRESS
    assert names.node_address(number) not in {names.node_address(other) for other in range(1, number)}
    assert names.node_pod_cidr(number).startswith("10.244.")


@pytest.mark.parametrize("node", ["n0", "n01", "n201", "m1", "n", "n1/kubelet"])
def test_an_invalid_name_of_a_node_is_refused(node):
    with pytest.raises(DevclusterError, match="write n1"):
        names.node_number(node)
