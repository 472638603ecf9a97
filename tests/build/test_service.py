from elastic_operator.build.service import build_endpoint_slice, build_service
from tests.build.objects import SERVICE_IP, Owner, make_pod


def make_slice(*, service_ip=SERVICE_IP, pod_ip="10.244.1.5"):
    return build_endpoint_slice(Owner(), service_ip=service_ip, pod_ip=pod_ip)


def test_the_service_selects_no_pods():
    assert "selector" not in build_service(Owner())["spec"]


def test_the_service_is_not_headless():
    spec = build_service(Owner())["spec"]
    assert spec["type"] == "ClusterIP"
    assert "clusterIP" not in spec


def test_the_slice_belongs_to_the_service_and_is_managed_by_us():
    service, endpoints = build_service(Owner()), make_slice()
    labels = endpoints["metadata"]["labels"]
    assert labels["kubernetes.io/service-name"] == service["metadata"]["name"] == "toy-master"
    assert labels["endpointslice.kubernetes.io/managed-by"] == "elastic-pytorch.dev"


def test_service_slice_and_pods_agree_on_the_port():
    service, endpoints = build_service(Owner()), make_slice()
    port = service["spec"]["ports"][0]
    assert (port["name"], port["targetPort"]) == (endpoints["ports"][0]["name"], endpoints["ports"][0]["port"])
    variables = make_pod()["spec"]["containers"][0]["env"]
    assert {"name": "MASTER_PORT", "value": str(port["port"])} in variables


def test_the_slice_routes_to_the_master_as_soon_as_it_has_an_address():
    (endpoint,) = make_slice()["endpoints"]
    assert endpoint["addresses"] == ["10.244.1.5"]
    assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}


def test_without_a_master_the_slice_routes_nowhere():
    assert make_slice(pod_ip=None)["endpoints"] == []


def test_the_slices_family_is_the_services_also_without_a_master():
    assert make_slice()["addressType"] == "IPv4"
    assert make_slice(service_ip="fd00::7", pod_ip="fd00:1::5")["addressType"] == "IPv6"
    assert make_slice(service_ip="fd00::7", pod_ip=None)["addressType"] == "IPv6"


def test_everything_goes_when_the_job_goes():
    for made in (build_service(Owner()), make_slice(), make_pod()):
        (owner,) = made["metadata"]["ownerReferences"]
        assert owner == {
            "apiVersion": "elastic-pytorch.dev/v1beta1",
            "kind": "ElasticPyTorchJob",
            "name": "toy",
            "uid": Owner().uid,
            "controller": True,
        }
