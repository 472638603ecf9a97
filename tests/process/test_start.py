import os
import signal
import subprocess
import sys

import pytest

from tests.apiserver.operators import eventually, handles


@pytest.mark.processes  # what Python does with a signal while it imports is seen in a process of its own only
def test_a_signal_while_the_operator_is_being_loaded_ends_it_well(tmp_path):
    """It has no kubeconfig: had it come as far as to want one, it would end with an error."""
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "none")}
    with subprocess.Popen([sys.executable, "-m", "elastic_operator", "run"], env=environ) as starting:
        eventually("its handler", lambda: handles(starting.pid, signal.SIGTERM))
        starting.terminate()
        assert starting.wait(20) == 0
