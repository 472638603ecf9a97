"""Chooses the torch of a job's processes."""

import pytest

from tests.worker.job.pod import FAKE, REAL


@pytest.fixture(params=[FAKE, pytest.param(REAL, marks=pytest.mark.extended)])
def tree(request):
    """The tree with the fake torch; in `make test-all` also one with the real torch.

    A test that needs only one of them has REAL_TORCH or FAKE_TORCH.
    """
    return request.param
