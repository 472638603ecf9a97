"""What somebody with `edit` in one namespace can do there, and cannot do to others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from elastic_api.policy import COLLECTION
from elastic_operator.read.foreign.reservation import CONDITION
from tests.api.jobs import make_container, make_template, with_gpus
from tests.api.policies import make_policy
from tests.apiserver.faults.lab import MERGE, World, await_service_account, elastic_job
from tests.apiserver.jobs_api import Jobs, accepted
from tests.apiserver.operators import eventually
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.reclaim.lab import FINALIZER, release_all
from tests.apiserver.rights.account import Installed
from tests.apiserver.rights.conftest import Estate, Install, Start
from tests.apiserver.rights.requests import Right

pytestmark = pytest.mark.apiserver

Object = dict[str, Any]
GROUP = "elastic-pytorch.dev"
JOBS = "elasticpytorchjobs"
READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete", "deletecollection")
ALICE, QUENTIN = "alice", "quentin"
AS_ALICE = {"Impersonate-User": ALICE, "Impersonate-Group": "system:authenticated"}
STRICT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}


def bind(estate: Estate, user: str, role: str, namespace: str = "") -> None:
    """Give the user a ClusterRole, in a namespace or everywhere."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    scope = f"/namespaces/{namespace}/rolebindings" if namespace else "/clusterrolebindings"
    body = {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    estate.api.post(f"/apis/rbac.authorization.k8s.io/v1{scope}", json=body | {"kind": kind})


def asker(installed: Installed, user: str, namespace: str) -> Callable[[str, str], bool]:
    """Whether the user may do that to a resource of ours in a namespace; "" for what has none."""
    return lambda verb, resource: installed.may(Right(verb, GROUP, resource), namespace, user=user)


@pytest.mark.parametrize(("role", "may_write"), [("view", False), ("edit", True), ("admin", True)])
def test_a_role_in_a_namespace_is_for_its_jobs_and_never_for_policies_or_statuses(
    estate: Estate,
    install: Install,
    world: World,
    new_namespace: Callable[[], Jobs],
    role: str,
    may_write: bool,
) -> None:
    installed, user = install(), f"a-{role}"
    namespace, other = world.jobs.namespace, new_namespace().namespace
    bind(estate, user, role, namespace)
    here, there = asker(installed, user, namespace), asker(installed, user, other)
    eventually("what controllers add to the role", lambda: here("create" if may_write else "watch", JOBS))
    assert all(here(verb, JOBS) for verb in READS)
    assert {here(verb, JOBS) for verb in WRITES} == {may_write}
    assert here("patch", f"{JOBS}/scale") is may_write
    assert not any(here(verb, f"{JOBS}/status") for verb in ("update", "patch"))
    assert not any(there(verb, JOBS) for verb in (*WRITES, *READS))
    everywhere = asker(installed, user, "")
    for resource in ("gpuquotapolicies", "gpuquotapolicies/status"):
        assert not any(ask(verb, resource) for ask in (here, everywhere) for verb in WRITES)


def test_the_quota_admin_writes_policies_and_nothing_else(estate: Estate, install: Install, world: World) -> None:
    installed = install()
    bind(estate, QUENTIN, "elastic-pytorch-quota-admin")
    ask = asker(installed, QUENTIN, "")
    eventually("the binding", lambda: ask("create", "gpuquotapolicies"))
    assert all(ask(verb, "gpuquotapolicies") for verb in (*WRITES, *READS))
    assert not any(ask(verb, "gpuquotapolicies/status") for verb in ("update", "patch"))
    assert not any(asker(installed, QUENTIN, world.jobs.namespace)(verb, JOBS) for verb in WRITES)


def test_no_label_annotation_or_class_gives_a_job_another_teams_guarantee(
    install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    install()
    other = new_namespace().namespace
    policies = Policies(world.api)
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2, limit=0))
    policies.create("b", namespaces=[other], flavors=quota(6))
    start()
    marks = {
        "namespace": other,
        "labels": {"kubernetes.io/metadata.name": other, f"{GROUP}/policy": policies.name("b")},
        "annotations": {f"{GROUP}/policy": policies.name("b"), f"{GROUP}/team": "b"},
    }
    job = elastic_job("greedy", small=1, big=8, priorityClassName="system-cluster-critical")
    job["metadata"] |= {key: marks[key] for key in ("labels", "annotations")}
    job["spec"]["template"]["metadata"] = marks
    job["spec"]["template"]["spec"]["priorityClassName"] = "elastic-pytorch-master"
    world.start(job)
    world.wait_settled("greedy", 2)
    messages = [c["message"] for c in world.status("greedy")["conditions"] if c["type"] == "FullSize"]
    assert policies.name("a") in messages[0]
    assert policies.status("b")["total"]["used"] == 0


def test_a_service_account_that_the_team_lacks_is_not_found_elsewhere(
    install: Install, world: World, start: Start
) -> None:
    install()
    start()
    job = elastic_job("thief", small=1, big=1)
    job["spec"]["template"]["spec"]["serviceAccountName"] = "elastic-pytorch-operator"
    world.start(job)

    def told() -> bool:
        return any("serviceaccount" in c["message"].lower() for c in world.status("thief").get("conditions", ()))

    eventually("a word of it", told, report=world.report)
    assert not world.pods("thief")


def strict(mode: str) -> Object:
    """A job of that mode whose template keeps to the strictest level of Pod Security."""
    job = elastic_job(f"strict-{mode.lower()}", small=1, big=2, runtime={"mode": mode})
    pod = job["spec"]["template"]["spec"]
    pod["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    pod["containers"][0]["securityContext"] = STRICT
    return job


def test_pods_are_taken_at_the_restricted_level(install: Install, world: World, start: Start) -> None:
    install()
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    world.api.patch(f"/api/v1/namespaces/{world.jobs.namespace}", headers=MERGE, json=label).raise_for_status()
    start()
    jobs = strict("Torchrun"), strict("Elastic")
    jobs[1]["spec"]["elasticity"]["checkpointPath"] = "/checkpoints"
    for job in jobs:
        world.start(job)
    for job in jobs:
        world.wait_settled(job["metadata"]["name"], 2)
    assert all(volume["name"] for pod in world.pods() for volume in pod["spec"]["volumes"])
    lax = {"metadata": {"name": "lax"}, "spec": {"containers": [{"name": "c", "image": "local/none:1"}]}}
    assert "PodSecurity" in world.api.post(world.pods_path, json=lax).text


def test_a_policy_that_a_tenant_applies_as_himself_is_refused(estate: Estate, install: Install, world: World) -> None:
    install()
    bind(estate, ALICE, "edit", world.jobs.namespace)
    mine = make_policy("mine", namespaces=[world.jobs.namespace], flavors=quota(100))
    assert estate.api.post(COLLECTION, headers=AS_ALICE, json=mine).status_code == 403


def give_claim_of_one_pod(world: World, name: str) -> None:
    """A bound claim that one pod at a time may use, wherever it runs."""
    claims, volume = (
        f"/api/v1/namespaces/{world.jobs.namespace}/persistentvolumeclaims",
        f"{world.jobs.namespace}-{name}",
    )
    once = {"accessModes": ["ReadWriteOncePod"], "storageClassName": ""}
    source = {"capacity": {"storage": "1Mi"}, "hostPath": {"path": "/nowhere"}}
    accepted(world.api.post("/api/v1/persistentvolumes", json={"metadata": {"name": volume}, "spec": once | source}))
    wanted = {"resources": {"requests": {"storage": "1Mi"}}, "volumeName": volume}
    accepted(world.api.post(claims, json={"metadata": {"name": name}, "spec": once | wanted}))
    eventually("a bound claim", lambda: world.api.get(f"{claims}/{name}").json()["status"]["phase"] == "Bound")


def test_a_forged_reservation_keeps_no_gpu_from_a_team_that_is_guaranteed_it(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    """The planner sees room for the pod, and kube-scheduler does not place it, as its claim is in use."""
    install()
    bind(estate, ALICE, "edit", world.jobs.namespace)
    owner = World(new_namespace(), world.kubelets)
    policies = Policies(world.api)
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(0, limit=0))
    policies.create("b", namespaces=[owner.jobs.namespace], flavors=quota(8))
    operator = start()
    await_service_account(world.api, world.jobs.namespace)
    give_claim_of_one_pod(world, "once")
    node = world.kubelets.nodes[0]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "once"}}]
    user = {"containers": [make_container(image="local/none:1")], "volumes": volumes, "nodeName": node}
    message = json.dumps({"node": node, "since": 0, "until": 1e300})
    condition = {"type": CONDITION, "status": "True", "message": message}
    forged = {"status": {"nominatedNodeName": node, "conditions": [condition]}}
    wants = {"containers": [with_gpus(4, image="local/none:1")], "volumes": volumes}
    for body in (
        {"metadata": {"name": "user"}, "spec": user},
        {"metadata": {"name": "thief"}, "spec": wants, **forged},
    ):
        accepted(world.api.post(world.pods_path, headers=AS_ALICE, json=body))
    assert world.api.patch(f"{world.pods_path}/thief/status", headers=MERGE | AS_ALICE, json=forged).status_code == 403
    owner.start(elastic_job(small=8, big=8))
    owner.wait_settled("toy", 8)
    thief = world.api.get(f"{world.pods_path}/thief").raise_for_status().json()
    assert "nominatedNodeName" not in thief["status"], operator.text()


def test_nobody_but_the_operator_gives_a_pod_to_a_job_or_takes_it_away_or_has_its_priority(
    estate: Estate, install: Install, world: World, start: Start
) -> None:
    install()
    bind(estate, ALICE, "edit", world.jobs.namespace)
    start()
    world.start(elastic_job(small=1, big=1))
    world.wait_settled("toy", 1)
    (pod,) = world.pods("toy")
    path = f"{world.pods_path}/{pod['metadata']['name']}"
    theirs = {"metadata": {"name": "toy-worker-0", "ownerReferences": pod["metadata"]["ownerReferences"]}}
    plain = {"containers": [make_container(image="local/none:1")]}
    told = "only the operator says which ElasticPyTorchJob controls a pod"
    made = world.api.post(world.pods_path, headers=AS_ALICE, json=theirs | {"spec": plain})
    freed = world.api.patch(path, headers=MERGE | AS_ALICE, json={"metadata": {"ownerReferences": None}})
    assert told in made.json()["message"]
    assert told in freed.json()["message"]
    of_ours = {"metadata": {"name": "high"}, "spec": plain | {"priorityClassName": "elastic-pytorch-master"}}
    ranked = world.api.post(world.pods_path, headers=AS_ALICE, json=of_ours)
    assert "are for pods of ElasticPyTorchJobs" in ranked.json()["message"]
    as_operator = {"metadata": {"name": "high"}, "spec": plain | {"priorityClassName": "elastic-pytorch-operator"}}
    above_all = world.api.post(world.pods_path, headers=AS_ALICE, json=as_operator)
    assert "is for pods in the operator's namespace" in above_all.json()["message"]
    accepted(world.api.patch(path, headers=MERGE | AS_ALICE, json={"metadata": {"labels": {"a": "b"}}}))
    accepted(world.api.delete(f"{world.jobs.path}/toy", params={"propagationPolicy": "Orphan"}))
    eventually("a pod without an owner", lambda: not world.api.get(path).json()["metadata"].get("ownerReferences"))


def test_pods_that_only_look_like_a_job_s_and_never_run_keep_no_gpu_from_anybody(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    """Of a job that may have none: pinned to a node, for no scheduler, and with a finalizer when they are deleted.

    Without our rules of admission, which refuse to make them.
    """
    install("--set", "admission.enabled=false")
    bind(estate, ALICE, "edit", world.jobs.namespace)
    owner = World(new_namespace(), world.kubelets)
    policies = Policies(world.api)
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(0, limit=0))
    policies.create("b", namespaces=[owner.jobs.namespace], flavors=quota(8))
    await_service_account(world.api, world.jobs.namespace)
    mine = accepted(world.jobs.create(elastic_job("mine"), headers=AS_ALICE))
    reference = {key: mine[key] for key in ("apiVersion", "kind")} | {
        key: mine["metadata"][key] for key in ("name", "uid")
    }
    for number, node in enumerate(world.kubelets.nodes, start=100):
        pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [pin]}}
        meta = {"name": f"mine-worker-{number}", "ownerReferences": [reference | {"controller": True}]}
        pod = {"containers": [with_gpus(4, image="local/none:1")], "affinity": {"nodeAffinity": required}}
        body = {"metadata": meta | {"finalizers": [FINALIZER]}, "spec": pod | {"schedulerName": "nobody"}}
        accepted(world.api.post(world.pods_path, headers=AS_ALICE, json=body))
    start()
    owner.start(elastic_job(small=8, big=8))
    owner.wait_settled("toy", 8)
    release_all(world.api)


def test_pods_of_a_job_preempt_nobody_whatever_class_its_template_names(
    estate: Estate, install: Install, world: World, start: Start
) -> None:
    install()
    bind(estate, ALICE, "edit", world.jobs.namespace)
    start()
    job = elastic_job("urgent", small=2, big=2)
    job["spec"]["template"]["spec"]["priorityClassName"] = "system-cluster-critical"
    await_service_account(world.api, world.jobs.namespace)
    accepted(world.jobs.create(job, headers=AS_ALICE))
    world.wait_settled("urgent", 2)
    classes = {pod["spec"]["priorityClassName"]: pod["spec"]["preemptionPolicy"] for pod in world.pods("urgent")}
    assert classes == {"elastic-pytorch-master": "Never", "elastic-pytorch-worker": "Never"}
    told = [c["message"] for c in world.status("urgent")["conditions"] if c["type"] == "PodPriorityIgnored"]
    assert "spec.template.spec.priorityClassName is 'system-cluster-critical'" in told[0]


def borrower_and_owner(
    estate: Estate, world: World, new_namespace: Callable[[], Jobs], start: Start, *, size: int = 8, **spec: Any
) -> World:
    """A job of the world's namespace has borrowed GPUs for `size` pods. Returns the team that is guaranteed all 8."""
    bind(estate, ALICE, "edit", world.jobs.namespace)
    owner = World(new_namespace(), world.kubelets)
    policies = Policies(world.api)
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(0))
    policies.create("b", namespaces=[owner.jobs.namespace], flavors=quota(8))
    start()
    world.start(elastic_job("borrower", small=1, big=size, **spec))
    world.wait_settled("borrower", size)
    return owner


def edit_as_alice(world: World, **spec: Any) -> None:
    """The tenant edits the borrower."""
    accepted(world.api.patch(f"{world.jobs.path}/borrower", headers=MERGE | AS_ALICE, json={"spec": spec}))


def wait_invalid(world: World, *told: str) -> None:
    """Until the borrower's status says that its spec is wrong, in these words."""

    def says() -> bool:
        conditions = world.status("borrower")["conditions"]
        invalid = (c["message"] for c in conditions if c["type"] == "Ready" and c["reason"] == "InvalidSpec")
        return any(all(words in message for words in told) for message in invalid)

    eventually(f"InvalidSpec: {told}", says, report=world.report)


def test_a_borrower_whose_priority_class_is_not_there_gives_back_what_it_borrowed(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    install()
    owner = borrower_and_owner(estate, world, new_namespace, start)
    edit_as_alice(world, priorityClassName="nobody-made-it")

    def told() -> bool:
        return any(c["type"] == "PriorityIgnored" for c in world.status("borrower")["conditions"])

    eventually("a warning", told, report=world.report)
    assert len(world.pods("borrower")) == 8
    owner.start(elastic_job(small=8, big=8))
    owner.wait_settled("toy", 8)
    assert world.pods("borrower") == []


def test_a_borrower_whose_spec_cannot_be_read_any_more_gives_back_what_it_borrowed(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    """The API server lets the template of a suspended job change, and looks at no amount in it.

    Suspended, spoilt and resumed while no operator runs, the job keeps its pods, and the next leader never read it.
    """
    install()
    first = start()
    owner = borrower_and_owner(estate, world, new_namespace, lambda: first)
    first.stop()
    edit_as_alice(world, suspend=True)
    spoilt = make_container(resources={"limits": {"nvidia.com/gpu": 1, "cpu": "plenty"}}, image="local/none:1")
    edit_as_alice(world, suspend=False, template=make_template(spoilt))
    start()
    wait_invalid(world, "spec.template.spec.containers[0].resources.limits.cpu: 'plenty'")
    assert len(world.pods("borrower")) == 8
    owner.start(elastic_job(small=8, big=8))
    owner.wait_settled("toy", 8)
    assert world.pods("borrower") == []


def test_a_borrower_more_of_whose_pods_are_refused_keeps_gpus_from_nobody(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    """Its workers have a host name that only the API server knows to be wrong; its master has four GPUs."""
    install()
    refused = make_template(with_gpus(4, image="local/none:1"), hostname="a_b")
    owner = borrower_and_owner(estate, world, new_namespace, start, size=1, gpus=4, worker={"template": refused})
    edit_as_alice(world, maxReplicas=2)
    wait_invalid(world, "spec.worker.template.spec.hostname", '"a_b"')
    world.start(elastic_job("mate", small=4, big=4))
    world.wait_settled("mate", 4)
    assert len(world.pods("borrower")) == 1
    owner.start(elastic_job(small=8, big=8))
    owner.wait_settled("toy", 8)
    assert world.pods() == []


def test_a_borrower_that_is_deleted_and_kept_by_a_finalizer_gives_back_what_it_borrowed(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    install()
    owner = borrower_and_owner(estate, world, new_namespace, start)
    path = f"{world.jobs.path}/borrower"
    kept = {"metadata": {"finalizers": [FINALIZER]}}
    accepted(world.api.patch(path, headers=MERGE | AS_ALICE, json=kept))
    try:
        accepted(world.api.delete(path, headers=AS_ALICE, params={"propagationPolicy": "Background"}))
        assert "deletionTimestamp" in world.jobs.get("borrower")["metadata"]
        assert len(world.pods("borrower")) == 8
        owner.start(elastic_job(small=8, big=8))
        owner.wait_settled("toy", 8)
        assert world.pods("borrower") == []
    finally:
        world.api.patch(path, headers=MERGE, json={"metadata": {"finalizers": None}})


def test_remaining_pods_of_an_ended_borrower_are_evicted(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    install()
    owner = borrower_and_owner(estate, world, new_namespace, start, cleanPodPolicy="None")
    world.end("borrower-master-0", 0)

    def succeeded() -> bool:
        conditions = {c["type"]: c["status"] for c in world.status("borrower")["conditions"]}
        return conditions.get("Succeeded") == "True"

    eventually("an end", succeeded, report=world.report)
    owner.start(elastic_job(small=8, big=8))
    owner.wait_settled("toy", 8)
    assert [pod["status"]["phase"] for pod in world.pods("borrower")] == ["Succeeded"]


def test_a_class_of_the_system_takes_nothing_from_a_team_mates_job(
    estate: Estate, install: Install, world: World, start: Start
) -> None:
    install()
    bind(estate, ALICE, "edit", world.jobs.namespace)
    start()
    world.start(elastic_job("mate", small=8, big=8))
    world.wait_settled("mate", 8)
    before = {pod["metadata"]["uid"] for pod in world.pods("mate")}
    pushy = elastic_job("pushy", small=8, big=8, priorityClassName="system-node-critical")
    accepted(world.jobs.create(pushy, headers=AS_ALICE))

    def ignored() -> tuple[str, str, str]:
        conditions = world.status("pushy").get("conditions", ())
        found = [c for c in conditions if c["type"] == "PriorityIgnored"]
        return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")

    eventually("a warning", lambda: ignored()[:2] == ("True", "PriorityClassNotAllowed"), report=world.report)
    assert "'system-node-critical', which jobs may not name" in ignored()[2]
    without = {"spec": {"priorityClassName": None}}
    accepted(world.api.patch(f"{world.jobs.path}/pushy", headers=MERGE | AS_ALICE, json=without))
    eventually("the end of the warning", lambda: ignored()[0] == "False", report=world.report)
    assert {pod["metadata"]["uid"] for pod in world.pods("mate")} == before
    assert not world.pods("pushy")


def test_namespaces_without_a_policy_get_together_what_one_of_them_would_get(
    estate: Estate, install: Install, world: World, new_namespace: Callable[[], Jobs], start: Start
) -> None:
    """The owner's job needs half of the GPUs, which is its team's fair share beside all the others as one team."""
    installed = install()
    mine = [world, *(World(new_namespace(), world.kubelets) for _ in range(2))]
    for one in mine:
        bind(estate, ALICE, "edit", one.jobs.namespace)
    owner = World(new_namespace(), world.kubelets)
    Policies(world.api).create("a", namespaces=[owner.jobs.namespace], flavors=quota(0))
    start()
    for one in mine:
        may = asker(installed, ALICE, one.jobs.namespace)
        eventually("what controllers add to the role", lambda may=may: may("create", JOBS))
        accepted(one.jobs.create(elastic_job("mine", small=1, big=8), headers=AS_ALICE))
    eventually("all GPUs in use", lambda: sorted(len(one.pods("mine")) for one in mine) == [2, 3, 3])
    owner.start(elastic_job(small=4, big=8))
    owner.wait_settled("toy", 4)
    eventually("the rest for the others", lambda: sorted(len(one.pods("mine")) for one in mine) == [1, 1, 2])
