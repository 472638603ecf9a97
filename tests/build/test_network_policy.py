from elastic_operator.build.names import owner_reference, service_name
from elastic_operator.build.network_policy import JobNetwork, build_network_policy
from elastic_operator.settings import Settings
from elastic_worker import contract
from tests.build.objects import UID, Owner, make_pod

OWN = {"podSelector": {"matchLabels": {contract.LABEL_JOB_UID: UID}}}
DNS = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def policy(**fields):
    return build_network_policy(Owner(), JobNetwork("operators", **fields))


def test_the_policy_selects_the_jobs_own_pods_and_is_deleted_with_the_job():
    made = policy()
    assert made["metadata"]["ownerReferences"] == [owner_reference(Owner())]
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == (service_name("toy"), "team-a")
    labels = made["spec"]["podSelector"]["matchLabels"]
    for role in ("master", "worker"):
        assert labels.items() <= make_pod(role=role)["metadata"]["labels"].items()


def test_in_come_the_jobs_pods_the_operator_to_the_launchers_and_whom_the_settings_name():
    rule = {"from": [{"podSelector": {}}], "ports": [{"port": 9000}]}
    own, operator, extra = policy(ingress=(rule,))["spec"]["ingress"]
    assert own == {"from": [OWN]}
    assert operator["ports"] == [{"protocol": "TCP", "port": contract.STATUS_PORT}]
    [peer] = operator["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "operators"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "elastic-operator"}
    assert extra == rule


def test_out_goes_anything_unless_the_settings_say_where():
    assert policy()["spec"]["policyTypes"] == ["Ingress"]
    assert "egress" not in policy()["spec"]
    closed = policy(egress=())["spec"]
    assert closed["policyTypes"] == ["Ingress", "Egress"]
    assert closed["egress"] == [{"to": [OWN]}, DNS]
    storage = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}]}
    assert policy(egress=(storage,))["spec"]["egress"] == [{"to": [OWN]}, DNS, storage]


def test_the_settings_rules_arrive_as_they_were_written():
    ingress = {"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"port": "http"}]}
    block = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}
    written = {"enabled": True, "ingress": [ingress], "egress": [block]}
    network = Settings.model_validate({"jobNetworkPolicy": written}).job_network("operators")
    with_protocol = {**ingress, "ports": [{"port": "http", "protocol": "TCP"}]}
    assert network == JobNetwork("operators", (with_protocol,), (block,))
    assert Settings().job_network("operators") is None
    assert Settings.model_validate({"jobNetworkPolicy": {"enabled": True}}).job_network("x") == JobNetwork("x")
