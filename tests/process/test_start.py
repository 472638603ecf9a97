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


NOT_IMPORTED = """
import sys
from elastic_operator import command_line, process
before = {"kopf", "kubernetes"} & sys.modules.keys()
process._without_kubernetes("elastic_operator.kopf_host")
print(sorted(before), sorted({"kopf", "kubernetes"} & sys.modules.keys()))
"""


@pytest.mark.processes  # what is imported is seen in a process of its own only
def test_in_a_pod_the_kubernetes_client_is_not_imported_and_kopf_is_when_it_starts():
    """They take 23 MB, and a third of a second of a start."""
    done = subprocess.run([sys.executable, "-c", NOT_IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] ['kopf']"
