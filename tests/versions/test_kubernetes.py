"""The releases of Kubernetes that are supported besides the usual one: a slice of the other tests, on each of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from demo.install import REPOSITORY
from devcluster import binaries
from devcluster.progress import Progress

OTHERS = [release for release in binaries.KUBERNETES if release != binaries.DEFAULT_KUBERNETES]
SLICE = (
    # The API server: schema, CEL, defaults and columns; the operator's rights; nominations from outside.
    "tests/apiserver/test_job_crd.py",
    "tests/apiserver/test_policy_crd.py",
    "tests/apiserver/rights/test_admission_of_the_operator.py",
    "tests/apiserver/reclaim/test_contest.py",
    # Kubelets: helm's install, the toy in both modes, an upgrade while plain pods take back their GPUs.
    "tests/cluster/test_toy.py",
    "tests/cluster/test_elastic_changes.py",
    "tests/cluster/test_install.py::test_gpus_are_given_back_all_through_a_rolling_upgrade",
)

pytestmark = [pytest.mark.cluster, pytest.mark.extended, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("release", OTHERS)
def test_the_slice_passes_on_another_release_of_kubernetes(release: str) -> None:
    # Built here: inside the slice, the 6 minutes of a new machine would count against the limit of its first test.
    binaries.ensure(Progress(), release=release)
    environment = {**os.environ, "ELASTIC_TEST_NAME": f"k{release.replace('.', '')}"}
    command = [sys.executable, "-m", "pytest", "-x", f"--kubernetes={release}", "-p", "no:randomly", *SLICE]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-20000:]}\n{done.stderr[-4000:]}"
    assert "no tests ran" not in done.stdout
