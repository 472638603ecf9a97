"""Of failures, which one was another's."""

import pytest

from elastic_worker.launcher.describe import is_consequence, what_happened

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 7, in <module>\n{}'


@pytest.mark.parametrize(
    "last",
    [
        "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1",
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, remote process exited",
        "torch.distributed.DistBackendError: NCCL operation timed out",
        "RuntimeError: NCCL operation timed out",
        "RuntimeError: NCCL communicator was aborted after a previous error",
        "RuntimeError: NCCL AllReduce failed: remote process exited or there was a network error \nNCCL Last Error: x",
        "RuntimeError: NCCL Async Error: unhandled system error \nNCCL Last Error: x",
    ],
)
def test_who_failed_in_communication_is_not_blamed(last):
    told = what_happened(1, 1, {"traceback": TRACEBACK.format(last)})
    assert told.startswith("rank 1 failed in communication with exit code 1")
    assert is_consequence(told)


@pytest.mark.parametrize("last", ["ValueError: the loss is NaN", "torch.OutOfMemoryError: CUDA out of memory"])
def test_who_failed_by_itself_is(last):
    told = what_happened(1, 1, {"traceback": TRACEBACK.format(last)})
    assert told.startswith("rank 1 failed with exit code 1")
    assert not is_consequence(told)
