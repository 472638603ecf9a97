"""Which torch a job's processes have."""

import pytest

from tests.worker.job.pod import FAKE, REAL


@pytest.fixture(params=[FAKE, pytest.param(REAL, marks=pytest.mark.extended)])
def tree(request):
    """What launchers do is seen with the fake one, and with the real one in `make test-all`.

    A test that needs one of them only has REAL_TORCH or FAKE_TORCH.
    """
    return request.param
