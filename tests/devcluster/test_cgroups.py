"""Which cgroup hierarchies a node needs, read from mount tables of different machines."""

from pathlib import Path

from devcluster import cgroups

VERSION_1 = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
"""
VERSION_2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n"
BESIDE = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n"


def roots(mounts):
    return [str(hierarchy.root) for hierarchy in cgroups.hierarchies(mounts)]


def test_with_version_1_every_hierarchy_is_used_the_named_one_too():
    expected = ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/systemd"]
    assert roots(VERSION_1) == expected


def test_only_the_cpuset_hierarchy_has_cpusets_to_fill():
    assert [h.root.name for h in cgroups.hierarchies(VERSION_1) if h.has_cpuset] == ["cpuset"]


def test_a_version_2_mount_beside_version_1_is_not_used():
    assert roots(VERSION_1 + BESIDE) == roots(VERSION_1)


def test_with_version_2_alone_it_is_used():
    assert cgroups.hierarchies(VERSION_2) == [cgroups.Hierarchy(Path("/sys/fs/cgroup"), version=2)]


def test_a_node_gets_its_weight_in_whichever_file_there_is(tmp_path):
    (tmp_path / "cpu.shares").write_text("1024")
    cgroups.give_weight(tmp_path)
    assert {file.name: int(file.read_text()) for file in tmp_path.iterdir()} == {"cpu.shares": 16 * 1024}
