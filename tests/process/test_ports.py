"""Jobs on the node's network: their Service, pods, routes, places and questions all go by the job's own ports."""

from dataclasses import replace

import pytest

from elastic_api.ports import master_port
from elastic_api.template import fingerprint
from elastic_operator.build.names import owner_reference
from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.cluster.stores import Stores
from elastic_operator.loop.reclaim.dry_run import DryRunner, DryRunQuestion
from elastic_operator.loop.writes.create import Creator
from elastic_operator.loop.writes.master import Masters, changed_route
from elastic_operator.plan.facts.decisions import NewPods, Route, Slot
from elastic_operator.pods.launcher_target import target_of
from elastic_operator.read.shapes import Shapes
from elastic_operator.settings import Settings
from elastic_worker.contract import ANNOTATION_TEMPLATE
from tests.build.objects import env_of
from tests.plan.jobs import TEMPLATE, group, make_grant, make_job, make_spec, plan, see

ON_NODE = {"spec": {**TEMPLATE["spec"], "hostNetwork": True}}
GPU = "nvidia.com/gpu"
MODES = [{"mode": "Elastic"}, {"mode": "Torchrun"}]
SLOTS = tuple(Slot(role, 0, None, True) for role in ("master", "worker"))
NEW = NewPods(SLOTS, 1, (2, 4), 1, '{"wish":1}')
BUILD = BuildSettings(worker_image="registry.example/worker:1")


def on_node(runtime, **more):
    return make_job(namespace="a", spec=make_spec(template=ON_NODE, runtime=runtime), **more)


def service_of(job, port):
    meta = {"name": "toy-master", "namespace": "a", "ownerReferences": [owner_reference(job)]}
    return {"metadata": meta, "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": port, "protocol": "TCP"}]}}


async def carry_out(job, session, api):
    """Both pods, the Service and the slice that were made for the job."""
    stores = Stores(*(Store() for _ in range(8)))
    await Creator(session, stores, BUILD).create_all(job, NEW, set())
    await Masters(session, stores).write_endpoint_slice(job, Route("10.1.0.5", "n1"))
    folder = "/api/v1/namespaces/a"
    found = [api.find(f"{folder}/pods/toy-{role}-0") for role in ("master", "worker")]
    slices = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/toy-master"
    return *found, api.find(f"{folder}/services/toy-master"), api.find(slices)


async def test_a_slice_with_the_masters_address_on_another_node_leads_wrong(session):
    job, stores = on_node({"mode": "Elastic"}), Stores(*(Store() for _ in range(8)))
    await Creator(session, stores, BUILD).create_all(job, NEW, set())
    await Masters(session, stores).write_endpoint_slice(job, Route("10.1.0.5", "n1"))
    assert changed_route(stores, job, Route("10.1.0.5", "n1")) is None
    moved = Route("10.1.0.5", "n2")
    assert changed_route(stores, job, moved) == moved
    await Masters(session, stores).write_endpoint_slice(job, moved)
    assert changed_route(stores, job, moved) is None


def declared(pod):
    return [port["hostPort"] for port in pod["spec"]["containers"][0].get("ports", [])]


@pytest.mark.parametrize("runtime", MODES, ids=["elastic", "torchrun"])
async def test_all_of_a_job_meet_at_its_own_port_which_its_master_declares(runtime, api, session):
    job = on_node(runtime)
    port = master_port(job.uid, job.spec)
    master, worker, service, routed = await carry_out(job, session, api)
    assert [each["port"] for each in (*service["spec"]["ports"], *routed["ports"])] == [port, port]
    for pod in (master, worker):
        env = env_of(pod)
        assert env["MASTER_PORT"] == str(port)
        assert env["PET_RDZV_ENDPOINT"].endswith(f":{port}")
    elastic = runtime["mode"] == "Elastic"
    assert declared(master) == ([port, port + 1] if elastic else [port])
    assert declared(worker) == []
    if elastic:
        assert [env_of(pod)["ELASTIC_STATUS_PORT"] for pod in (master, worker)] == [str(port + 1), str(port + 2)]


async def test_a_job_that_began_under_an_older_release_keeps_the_ports_that_its_pods_know(api, session):
    job = on_node(MODES[0])
    api.put("/api/v1/namespaces/a/services/toy-master", service_of(job, 29400))
    master, worker, _, routed = await carry_out(job, session, api)
    assert [each["port"] for each in routed["ports"]] == [29400]
    assert [env_of(pod)["MASTER_PORT"] for pod in (master, worker)] == ["29400", "29400"]
    assert [env_of(pod)["ELASTIC_STATUS_PORT"] for pod in (master, worker)] == ["29401", "29401"]
    assert declared(master) == declared(worker) == []
    for pod, role in ((master, "master"), (worker, "worker")):
        assert pod["metadata"]["annotations"][ANNOTATION_TEMPLATE] == fingerprint(job.spec, role)


@pytest.mark.parametrize("began", ["now", "under-an-older-release"])
@pytest.mark.parametrize("runtime", MODES, ids=["elastic", "torchrun"])
async def test_a_dry_run_asks_for_the_ports_that_the_created_pods_declare(runtime, began, api, session):
    """Otherwise other pods are evicted for pods that an admission policy on host ports then refuses (139)."""
    job, stores = on_node(runtime), Stores(*(Store() for _ in range(8)))
    if began != "now":
        service = api.put("/api/v1/namespaces/a/services/toy-master", service_of(job, 29400))
        stores.services.observe(objects.decode(service, objects.Service))
    await DryRunner(session, stores, BUILD).ask(DryRunQuestion(job, NEW))
    asked = {tuple(declared(pod)) for _, _, query, pod in api.seen if "dryRun" in query}
    master, worker, *_ = await carry_out(job, session, api)
    assert asked == {tuple(declared(pod)) for pod in (master, worker)}


async def test_ports_that_the_template_declares_are_declared_once(api, session):
    job = on_node(MODES[0])
    port = master_port(job.uid, job.spec)
    container = {**TEMPLATE["spec"]["containers"][0], "ports": [{"containerPort": port, "hostPort": port}]}
    spec = make_spec(template={"spec": {"hostNetwork": True, "containers": [container]}}, runtime=MODES[0])
    master, worker, *_ = await carry_out(replace(job, spec=spec), session, api)
    assert declared(master) == [port, port + 1]
    assert declared(worker) == [port]


def test_the_planner_knows_the_ports_that_masters_will_declare():
    shapes = Shapes(Settings(), claims=Store(), volumes=Store(), classes=Store())
    job = on_node(MODES[0])
    port = master_port(job.uid, job.spec)
    shape = shapes.shape_of(job)
    assert shape.master.host_ports == {("", "TCP", port), ("", "TCP", port + 1)}
    assert shape.worker.host_ports == frozenset()
    assert shapes.shape_of(make_job(namespace="a", uid="other")).master.host_ports == frozenset()


def test_roles_with_the_same_template_share_one_shape_and_others_have_their_own():
    flavors = ({"name": "a", "resources": [GPU], "nodeSelector": {"pool": "a"}},)
    shapes = Shapes(Settings(flavors=flavors), claims=Store(), volumes=Store(), classes=Store())
    template = {"spec": {"containers": [{**TEMPLATE["spec"]["containers"][0], "resources": {"limits": {GPU: 1}}}]}}
    shared = shapes.shape_of(make_job(spec=make_spec(template=template)))
    assert shared.master is shared.worker
    assert shared.master.node_selector == {"pool": "a"}
    larger = {"spec": {"containers": [{**template["spec"]["containers"][0], "resources": {"limits": {GPU: 2}}}]}}
    apart = shapes.shape_of(make_job(uid="other", spec=make_spec(template=template, master={"template": larger})))
    assert (apart.master.gpus, apart.worker.gpus) == (2, 1)


@pytest.mark.parametrize("declares", [True, False], ids=["its-own", "of-an-older-release"])
def test_a_master_is_asked_where_it_listens(declares):
    port = master_port("job-uid", make_spec(template=ON_NODE))
    ports = frozenset({("", "TCP", port), ("", "TCP", port + 1)}) if declares else frozenset()
    job = on_node(MODES[0], pods=group(host_ports=ports))
    target = target_of(see(job), plan(job, make_grant(keep=("master-0", "worker-0"))), now=200.0)
    assert target.port == (port + 1 if declares else 29401)
