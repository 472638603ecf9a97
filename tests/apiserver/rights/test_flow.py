"""Which line the API server puts the operator's requests in, by the FlowSchemas of the chart."""

import ssl

import httpx
import pytest

from tests.apiserver.operators import eventually
from tests.apiserver.rights.account import NAME, NAMESPACE

pytestmark = pytest.mark.apiserver

SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
def operator(estate, install):
    """A client with the operator's account."""
    install()
    trusted = ssl.create_default_context(cafile=str(estate.cluster.layout.pki / "ca.crt"))
    with httpx.Client(
        base_url=str(estate.api.base_url), verify=trusted, headers={"Authorization": f"Bearer {estate.token}"}
    ) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "schema"),
    [("/api/v1/pods", NAME), (f"{LEASES}/elastic-pytorch-operator", f"{NAME}-lease"), ("/version", "service-accounts")],
)
def test_the_operators_requests_do_not_stand_in_line_with_those_of_all_service_accounts(estate, operator, path, schema):
    uid = estate.api.get(f"{SCHEMAS}/{schema}").json()["metadata"]["uid"]

    def found():
        return operator.get(path, params={"limit": 1}).headers["X-Kubernetes-Pf-Flowschema-Uid"] == uid

    eventually(f"{path} to be served by {schema}", found)
