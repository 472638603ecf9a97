from elastic_operator.build.resource_quota import QUOTA_NAME, build_resource_quota
from elastic_operator.settings import Settings

CLASSES = ("elastic-pytorch-worker", "elastic-pytorch-master")


def test_the_quota_limits_each_resource_for_pods_without_a_priority_class_of_jobs():
    made = build_resource_quota("team-a", {"nvidia.com/gpu": 4, "amd.com/gpu": 0}, classes=CLASSES)
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == (QUOTA_NAME, "team-a")
    assert made["spec"]["hard"] == {"requests.nvidia.com/gpu": "4", "requests.amd.com/gpu": "0"}
    [others] = made["spec"]["scopeSelector"]["matchExpressions"]
    assert others == {"scopeName": "PriorityClass", "operator": "NotIn", "values": list(CLASSES)}


def test_the_classes_are_those_of_the_settings():
    assert Settings().job_pod_classes == CLASSES
    named = {"workerPriorityClassName": "low", "masterPriorityClassName": ""}
    assert Settings.model_validate(named).job_pod_classes == ("low",)
