"""`run --code` on a real API server, with a tenant's rights: ConfigMaps come, are shared, and go with the last job."""

from __future__ import annotations

import asyncio
import base64

import pytest
import yaml

from elastic_client.code import ship
from elastic_client.code.folder import MOST_BYTES, MOST_FILES, read
from elastic_client.code.objects import config_map, name_of
from elastic_client.convert.run import RunFlags
from elastic_client.exits import ClientError, Code
from elastic_client.job_client import AsyncJobClient, JobClient
from tests.api.jobs import make_job
from tests.apiserver.operators import eventually
from tests.client.code.folders import make_folder

pytestmark = pytest.mark.apiserver


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "proj", train_py="import helper\n", helper_py="x = 1\n")


def run(tenant, folder, name="toy", *flags):
    words = ("run", *tenant.words, "-i", "i", "--name", name, "--code", str(folder), *flags, "--", "train.py")
    return tenant.elastic(*words)


def maps(tenant):
    """The ConfigMaps with code, by name."""
    path = f"/api/v1/namespaces/{tenant.jobs.namespace}/configmaps"
    found = tenant.jobs.api.get(path, params={"labelSelector": "elastic-pytorch.dev/code"}).json()["items"]
    return {one["metadata"]["name"]: one for one in found}


def owners(body):
    return sorted(one["name"] for one in body["metadata"].get("ownerReferences", ()))


def manifest(name):
    job = make_job(name)
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["train.py"]
    return {**job, "metadata": {"name": name}}


def test_a_job_has_the_folder_as_a_configmap_that_it_owns(tenant, folder):
    ended = run(tenant, folder)
    assert ended.code == 0, ended.err
    code = read(folder)
    assert f"Code: {code}. The pods have it at /code, read-only." in ended.err
    (found,) = maps(tenant).values()
    assert found["metadata"]["name"] == name_of(code)
    assert sorted(base64.b64decode(one) for one in found["binaryData"].values()) == [b"import helper\n", b"x = 1\n"]
    assert owners(found) == ["toy"]
    assert f"Code\n  {code}\n" in tenant("describe", "toy").out
    assert "Code" not in tenant("why", "toy").out


def test_an_edit_is_another_configmap_and_the_same_code_is_not_sent_twice(tenant, folder):
    assert run(tenant, folder, "first").code == 0
    assert run(tenant, folder, "second").code == 0
    (shared,) = maps(tenant).values()
    assert owners(shared) == ["first", "second"]
    (folder / "helper.py").write_text("x = 2\n")
    assert run(tenant, folder, "third").code == 0
    assert sorted(map(owners, maps(tenant).values())) == [["first", "second"], ["third"]]
    assert tenant("delete", "first", "third").code == 0
    eventually("the third job's code goes", lambda: [*map(owners, maps(tenant).values())] == [["second"]])
    assert tenant("delete", "second").code == 0
    eventually("the code goes with the last job", lambda: maps(tenant) == {})


def test_a_refused_job_leaves_no_configmap_unless_another_job_has_it(tenant, folder):
    tenant.create("taken")
    ended = run(tenant, folder, "taken")
    assert (ended.code, maps(tenant)) == (Code.REFUSED, {})
    assert "already exists: choose another --name" in ended.err
    assert run(tenant, folder, "toy").code == 0
    assert run(tenant, folder, "taken").code == Code.REFUSED
    assert [*map(owners, maps(tenant).values())] == [["toy"]]


def test_a_configmap_with_other_contents_under_that_name_is_refused(tenant, folder):
    body = config_map(read(folder))
    key = next(iter(body["binaryData"]))
    path = f"/api/v1/namespaces/{tenant.jobs.namespace}/configmaps"
    tenant.jobs.api.post(path, json={**body, "binaryData": {**body["binaryData"], key: "ZXZpbA=="}}).raise_for_status()
    ended = run(tenant, folder)
    assert ended.code == Code.REFUSED
    assert f"has one of that name with other contents: delete it by `kubectl -n {tenant.jobs.namespace}" in ended.err
    assert tenant.jobs.api.get(f"{tenant.jobs.path}/toy").status_code == 404


def test_code_that_went_with_another_job_is_there_again_with_its_owner(tenant, folder, monkeypatch):
    """The other job goes after its ConfigMap was found, and before the new job can own it."""
    assert run(tenant, folder, "old").code == 0
    create_job = ship._create_job

    async def after_the_old_one_has_gone(cluster, manifest):
        (name,) = maps(tenant)
        await cluster.delete(f"/api/v1/namespaces/{cluster.namespace}/configmaps/{name}")
        return await create_job(cluster, manifest)

    monkeypatch.setattr(ship, "_create_job", after_the_old_one_has_gone)
    assert run(tenant, folder, "new").code == 0
    (found,) = maps(tenant).values()
    assert "new" in owners(found)
    assert found["binaryData"] == config_map(read(folder))["binaryData"]


async def test_jobs_that_begin_at_once_all_own_the_code(tenant, folder):
    names = [f"toy-{number}" for number in range(6)]
    jobs = AsyncJobClient(tenant.jobs.namespace, kubeconfig=str(tenant.kubeconfig))
    await asyncio.gather(*(jobs.create(manifest(name), code=folder) for name in names))
    (found,) = maps(tenant).values()
    assert owners(found) == names


def test_who_may_not_create_configmaps_is_told_so(tenant_with, folder):
    ended = run(tenant_with("view"), folder)
    assert ended.code == Code.NOT_ALLOWED
    assert 'cannot create resource "configmaps"' in ended.err


def test_the_largest_folder_that_fits_is_taken(tenant, tmp_path):
    files = {f"{'long' * 20}__{number:03d}": "" for number in range(MOST_FILES - 1)}
    ended = run(tenant, make_folder(tmp_path / "proj", train_py="x" * MOST_BYTES, **files))
    assert ended.code == 0, ended.err
    assert owners(*maps(tenant).values()) == ["toy"]


def test_a_dry_run_prints_both_objects_as_the_api_server_takes_them(tenant, folder):
    ended = run(tenant, folder, "toy", "--dry-run")
    code, job = yaml.safe_load_all(ended.out)
    assert (code["kind"], job["kind"]) == ("ConfigMap", "ElasticPyTorchJob")
    assert code["metadata"]["namespace"] == job["metadata"]["namespace"] == tenant.jobs.namespace
    assert "stays when the job is deleted" in ended.err
    assert maps(tenant) == {}
    path = f"/api/v1/namespaces/{tenant.jobs.namespace}/configmaps"
    strict = {"fieldValidation": "Strict"}
    tenant.jobs.api.post(path, json=code, params=strict).raise_for_status()
    tenant.jobs.create(job).raise_for_status()
    assert run(tenant, folder, "other").code == 0, "what was applied by hand is the same"
    assert [*map(owners, maps(tenant).values())] == [[]], "the job that was applied with it would lose it with another"


def test_jobs_from_python_have_code_too(tenant, folder):
    jobs = JobClient(tenant.jobs.namespace, kubeconfig=str(tenant.kubeconfig))
    made = jobs.create(manifest("first"), code=folder)
    assert made.code == str(read(folder)) == jobs.get("first").code
    flags = RunFlags(name="second", image="i", command=["train.py"])
    jobs.create(flags, code=folder)
    (found,) = maps(tenant).values()
    assert owners(found) == ["first", "second"]
    with pytest.raises(ClientError, match=r"none\.py: --code ships the folder proj") as refused:
        jobs.create(RunFlags(name="third", image="i", command=["none.py"], code=str(folder)))
    assert refused.value.code == Code.USAGE
