"""The objects of a typical job as YAML files: what a change of `build/` changes in a cluster, for a person to read."""

from pathlib import Path
from typing import Any

import yaml

from elastic_api.ports import master_port
from elastic_operator.build.network_policy import JobNetwork, build_network_policy
from elastic_operator.build.request import BuildSettings
from elastic_operator.build.resource_quota import build_resource_quota
from elastic_operator.build.service import build_endpoint_slice, build_service
from tests.api.jobs import make_container, make_template
from tests.build.objects import SERVICE_IP, UID, Owner, make_pod, make_spec

FOLDER = Path(__file__).parent / "golden"
SETTINGS = BuildSettings(
    master_priority_class="elastic-pytorch-master",
    worker_priority_class="elastic-pytorch-worker",
    worker_image="registry.example/elastic-pytorch/worker:1",
)

CLASSES = (SETTINGS.worker_priority_class, SETTINGS.master_priority_class)
NETWORK = JobNetwork("elastic-system", egress=({"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]},))


class _Dumper(yaml.SafeDumper):
    """Scripts as they read, and no anchors."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def golden_objects() -> dict[str, dict[str, Any]]:
    """By file name: the objects of a job of 2 to 4 pods with 2 GPUs each.

    And pods of Elastic jobs, one of them with a command, a package of its own and a read-only root, and two on their
    node's network; and the quota of a namespace.
    """
    container = make_container(
        args=["train.py", "--lr", "0.1"],
        env=[{"name": "NCCL_DEBUG", "value": "WARN"}],
        resources={"limits": {"nvidia.com/gpu": 2}},
    )
    spec = make_spec({**make_template(container), "metadata": {"labels": {"team": "vision"}}})
    elastic = make_spec(
        make_template(container, imagePullSecrets=[{"name": "mirror"}]),
        runtime={"mode": "Elastic", "preload": ["torchvision", "numpy"]},
        elasticity={"checkpointPath": "/checkpoints/last.pt"},
    )
    command = make_spec(
        make_template(
            make_container(
                command=["bash", "launch.sh"], args=["--lr"], securityContext={"readOnlyRootFilesystem": True}
            )
        ),
        runtime={"mode": "Elastic", "inject": False, "python": "/opt/conda/bin/python"},
    )
    on_node = make_spec(
        make_template(container, hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"), runtime={"mode": "Elastic"}
    )
    port = master_port(UID, on_node)
    return {
        "elastic-master": make_pod(elastic, role="master", settings=SETTINGS, master_epoch=2, membership='{"wish":1}'),
        "elastic-worker": make_pod(elastic, role="worker", index=2, settings=SETTINGS, master_epoch=2),
        "elastic-command": make_pod(command, role="worker", index=1, settings=SETTINGS, master_epoch=1),
        "master": make_pod(spec, role="master", settings=SETTINGS),
        "worker": make_pod(spec, role="worker", index=2, node="node-b", settings=SETTINGS),
        "host-network-master": make_pod(on_node, role="master", settings=SETTINGS, master_epoch=1, port=port),
        "host-network-worker": make_pod(on_node, role="worker", settings=SETTINGS, master_epoch=1, port=port),
        "host-network-service": build_service(Owner(), port=port),
        "service": build_service(Owner()),
        "network-policy": build_network_policy(Owner(), NETWORK),
        "resource-quota": build_resource_quota("team-a", {"nvidia.com/gpu": 8}, classes=CLASSES),
        "endpoint-slice": build_endpoint_slice(Owner(), service_ip=SERVICE_IP, pod_ip="10.244.1.5"),
    }


def as_yaml(thing: dict[str, Any]) -> str:
    return yaml.dump(thing, Dumper=_Dumper, sort_keys=False, width=120)
