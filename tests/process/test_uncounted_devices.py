"""What of a job's requests dynamic resource allocation (DRA) may hand out, from its templates and the DeviceClasses."""

import pytest

from elastic_operator.cluster.objects import DeviceClass, decode
from elastic_operator.cluster.store import Store
from elastic_operator.read.uncounted_devices import (
    DeviceRequests,
    class_of_resources,
    device_requests_of,
    why_not_counted,
)
from tests.api.jobs import make_container, make_template, with_gpus
from tests.build.objects import make_spec

GPU = "nvidia.com/gpu"
NAMED = "deviceclass.resource.kubernetes.io/large"
LIMITS = {"limits": {NAMED: "1", "cpu": 2}}


def why(asked, **class_of):
    store = Store()
    for version, (name, resource) in enumerate(class_of.items(), start=1):
        meta = {"name": name, "uid": name, "resourceVersion": str(version)}
        store.observe(decode({"metadata": meta, "spec": {"extendedResourceName": resource}}, DeviceClass))
    return why_not_counted(asked, class_of_resources(store))


def claiming(template):
    template["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return template


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"template": make_template(with_gpus(2))}, DeviceRequests(False, frozenset({GPU}))),
        ({"template": claiming(make_template())}, DeviceRequests(True)),
        ({"worker": {"template": claiming(make_template())}}, DeviceRequests(True)),
        ({"master": {"template": claiming(make_template())}}, DeviceRequests(True)),
        ({"template": make_template(make_container(resources=LIMITS))}, DeviceRequests(False, frozenset({NAMED}))),
    ],
)
def test_both_templates_are_read(fields, asked):
    assert device_requests_of(make_spec(**fields)) == asked


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (DeviceRequests(), ""),
        (DeviceRequests(False, frozenset({GPU})), "nvidia.com/gpu is handed out by DRA (DeviceClass gpus)."),
        (DeviceRequests(False, frozenset({"example.com/nic"})), ""),
        (DeviceRequests(False, frozenset({NAMED})), f"{NAMED} is handed out by DRA (DeviceClass large)."),
        (DeviceRequests(True, frozenset({GPU})), "Its pods have resourceClaims."),
    ],
)
def test_uncounted_devices_are_named_with_their_class(asked, told):
    reason = why(asked, gpus=GPU, other=None)
    assert reason.message.startswith(told) if told else reason is None


def test_without_such_a_class_an_extended_resource_is_counted():
    assert why(DeviceRequests(False, frozenset({GPU}))) is None
