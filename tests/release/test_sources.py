"""What a release is made from: a commit's files, the version they name, and the commits before it."""

import shutil
import subprocess

import pytest

from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from release import source
from release.changelog import section

pytestmark = pytest.mark.processes

WHEN = 1_700_000_000
HISTORY = (
    "Operator: a job starts",
    "v0.1.0",
    "Operator: a job ends: at once",
    "Tests: fewer",
    "Chart: a value must be set\n\nWith more to say.",
    "Merge branch 'other'",
    "Library: one name less",
)

WITH_VERSION = (*source.PROJECTS, "charts/elastic-pytorch/Chart.yaml", source.PAGE)


def git(folder, *words):
    who = ("-c", "user.name=any", "-c", "user.email=any@example.com")
    env = {"GIT_COMMITTER_DATE": f"{WHEN} +0000", "GIT_AUTHOR_DATE": f"{WHEN} +0000", "PATH": "/usr/bin:/bin"}
    subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    """With these commits, and a tag before the second one."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    (folder / "kept").write_text("committed")
    git(folder, "add", "kept")
    for what in HISTORY:
        words = ("tag", what) if what.startswith("v") else ("commit", "--allow-empty", "--message", what)
        git(folder, *words)
    return folder


def test_the_changelog_has_what_users_meet_by_area_since_the_last_tag(repository):
    lines = [line.rpartition(" (")[0] or line for line in section(repository, "0.2.0", epoch=WHEN).splitlines() if line]
    assert lines == [
        "## 0.2.0",
        "### Operator",
        "* A job ends: at once",
        "### Library",
        "* One name less",
        "### Installation",
        "* A value must be set",
    ]


def test_a_release_is_made_from_what_is_committed_at_the_commits_time(repository, tmp_path):
    (repository / "kept").write_text("changed since")
    (repository / "new").write_text("never added")
    found = source.export(repository, tmp_path / "source", Progress(quiet=True))
    assert {path.name: path.read_text() for path in found.folder.iterdir()} == {"kept": "committed"}
    assert found.epoch == WHEN


def test_all_files_with_a_version_name_the_same_one():
    assert len(set(source.versions(source.ROOT).values())) == 1


@pytest.mark.parametrize("file", WITH_VERSION)
def test_a_file_that_names_another_version_is_told(file, tmp_path):
    for name in WITH_VERSION:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source.ROOT / name, tmp_path / name)
    (version,) = set(source.versions(tmp_path).values())
    source.check_version(tmp_path, version)

    changed = tmp_path / file
    changed.write_text(changed.read_text().replace(version, "9.9.9"))
    with pytest.raises(DevclusterError, match=rf"VERSION={version}: {file}.* says 9\.9\.9"):
        source.check_version(tmp_path, version)


@pytest.mark.parametrize(
    ("version", "registry", "told"),
    [
        ("", "", "VERSION=''"),
        ("v1.2.3", "", "VERSION='v1.2.3'"),
        ("1.2.3-rc.1", "", "VERSION='1.2.3-rc.1'"),
        ("1.2.3", "https://registry.example.com", "REGISTRY='https://registry.example.com'"),
        ("1.2.3", "registry.example.com/", "REGISTRY='registry.example.com/'"),
    ],
)
def test_a_version_or_registry_that_cannot_be_is_refused_with_what_to_write(version, registry, told):
    with pytest.raises(DevclusterError, match=f"^{told}: write .*(VERSION=1.2.3|REGISTRY=registry.example.com/team)"):
        source.Wanted(version, registry)


@pytest.mark.parametrize("registry", ["registry.example.com/team", "127.0.0.1:5000", "docker.io/some_one"])
def test_a_registry_is_a_host_and_a_path(registry):
    assert source.Wanted("1.2.3", registry).registry == registry
