"""Small builders and waits for tests with a cluster of their own; nothing but kubectl and the pause image is needed."""

import json
import subprocess
from datetime import datetime

from devcluster import cgroups, images
from tests.kit.wait import until


def make_pod(name="pod", *, gpus=1, node="", tolerates_lost_nodes=False):
    """A pod that holds its GPUs until it is deleted; on that node, if one is named."""
    toleration = [{"operator": "Exists"}] if tolerates_lost_nodes else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "tolerations": toleration,
            "containers": [
                {"name": "main", "image": images.PAUSE_REF, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
            ],
        },
    }


def kubectl(cluster, *words, stdin=""):
    """Standard output of kubectl; its own words when it fails."""
    command = [cluster.kubectl, "--kubeconfig", str(cluster.kubeconfig), *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(cluster, *objects):
    kubectl(cluster, "apply", "-f", "-", stdin="\n---\n".join(json.dumps(each) for each in objects))


def get(cluster, kind, name):
    return json.loads(kubectl(cluster, "get", kind, name, "-o", "json"))


def wait_for(what, holds, *, seconds=40.0):
    """Poll until `holds()`, and say what was waited for in vain."""
    until(what, holds, seconds=seconds)


def wait_running(cluster, name):
    wait_for(f"pod {name} to run", lambda: get(cluster, "pod", name)["status"]["phase"] == "Running")


def container_processes(cluster, node_name):
    """Pids of what runs in containers of the node."""
    return cgroups.pids(cluster.layout.cgroup(node_name))


def allocatable_gpus(cluster, node_name):
    return get(cluster, "node", node_name)["status"]["allocatable"].get("nvidia.com/gpu")


def node_ready(cluster, node_name):
    """True, False or Unknown, as text."""
    return _ready(cluster, node_name)["status"]


def heartbeat(cluster, node_name):
    """When the kubelet last told how the node is, in whole seconds."""
    return datetime.fromisoformat(_ready(cluster, node_name)["lastHeartbeatTime"])


def _ready(cluster, node_name):
    conditions = get(cluster, "node", node_name)["status"]["conditions"]
    return next(condition for condition in conditions if condition["type"] == "Ready")
