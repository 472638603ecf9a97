"""Which torch a job's processes have."""

import pytest

from devcluster import torchtree
from tests.worker.job.pod import FAKE


@pytest.fixture(params=[FAKE, pytest.param(torchtree.DEFAULT_TREE, marks=pytest.mark.extended)])
def tree(request):
    """What launchers do is seen with the fake one; that it is so with the real one, where a test does not ask for it
    by `REAL`, is for `make test-all`.
    """
    return request.param
