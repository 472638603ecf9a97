import pytest

from elastic_api.elastic import injector, requested_template
from elastic_api.template import requests_of
from elastic_operator.build.request import BuildSettings
from elastic_worker import contract
from tests.api.jobs import make_container, make_template
from tests.build.objects import SERVICE_IP, UID, env_of, make_pod, make_spec

SETTINGS = BuildSettings(worker_image="registry.example/worker:7")


def elastic(*, container=None, runtime=None, pod=None, **fields):
    template = make_template(*filter(None, [container]), **(pod or {}))
    return make_spec(template, runtime={"mode": "Elastic", **(runtime or {})}, **fields)


def built(spec=None, *, role="worker", **how):
    return make_pod(spec or elastic(), role=role, settings=SETTINGS, master_epoch=3, membership="{}", **how)


def main_of(pod):
    return pod["spec"]["containers"][0]


def mounts(pod):
    return {mount["mountPath"]: mount for mount in main_of(pod)["volumeMounts"]}


def volumes(pod):
    return {volume["name"]: volume for volume in pod["spec"]["volumes"]}


def test_the_launcher_comes_before_the_users_init_containers_and_may_do_nothing_else():
    pod = built(elastic(pod={"initContainers": [make_container(name="own")]}))
    first, own = pod["spec"]["initContainers"]
    assert (first["name"], first["image"], own["name"]) == ("elastic-pytorch-inject", SETTINGS.worker_image, "own")
    assert first["securityContext"]["runAsNonRoot"] is True
    assert isinstance(first["securityContext"]["runAsUser"], int)
    assert first["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert first["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert first["securityContext"]["allowPrivilegeEscalation"] is False
    assert first["resources"].keys() == {"requests", "limits"}
    (mount,) = first["volumeMounts"]
    assert mount["mountPath"] == contract.INJECT_FOLDER
    assert mounts(pod)[contract.INJECT_FOLDER] == {**mount, "readOnly": True}
    assert mount["name"] in volumes(pod)


def test_an_image_that_has_the_launcher_gets_none():
    pod = built(elastic(runtime={"inject": False}))
    assert "initContainers" not in pod["spec"]
    assert contract.INJECT_FOLDER not in mounts(pod)


def test_the_scheduler_is_expected_to_count_the_init_container():
    spec = elastic(container=make_container(resources={"requests": {"cpu": "2"}}))
    for role in ("master", "worker"):
        sent = requests_of(built(spec, role=role))
        assert requests_of(requested_template(spec, role)) == sent
        assert sent["memory"] > 0
    without = elastic(runtime={"inject": False})
    assert requested_template(without, "worker") == without.template
    assert requested_template(make_spec(), "worker") == make_spec().template


def test_only_the_master_has_the_membership_as_a_folder_that_the_kubelet_renews():
    pod = built(role="master")
    mount = mounts(pod)[contract.MEMBERSHIP_FOLDER]
    assert "subPath" not in mount
    (item,) = volumes(pod)[mount["name"]]["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{contract.ANNOTATION_MEMBERSHIP}']"
    assert env_of(pod)["ELASTIC_WISH_FILE"] == f"{contract.MEMBERSHIP_FOLDER}/{item['path']}"
    assert contract.MEMBERSHIP_FOLDER not in mounts(built())
    assert "ELASTIC_WISH_FILE" not in env_of(built())


def test_the_master_is_made_with_its_epoch_and_who_is_to_take_part():
    notes = make_pod(elastic(), role="master", master_epoch=3, membership='{"wish": 1}')["metadata"]["annotations"]
    assert notes[contract.ANNOTATION_MASTER_EPOCH] == "3"
    assert notes[contract.ANNOTATION_MEMBERSHIP] == '{"wish": 1}'
    assert (
        not {contract.ANNOTATION_MASTER_EPOCH, contract.ANNOTATION_MEMBERSHIP}
        & built()["metadata"]["annotations"].keys()
    )


def test_no_size_is_frozen_in_the_pods():
    assert contract.ANNOTATION_NNODES not in built()["metadata"]["annotations"]


def test_the_environment_is_what_the_spec_says():
    spec = elastic(
        runtime={"preload": ["numpy", "torchvision.models"]},
        nprocPerNode=3,
        elasticity={
            "checkpointPath": "/c",
            "checkpointComplete": "*.done",
            "checkpointSignal": "SIGUSR1",
            "alignTimeoutSeconds": 7,
            "gracePeriodSeconds": 0,
        },
        recovery={"stallSeconds": 90, "maxFailuresWithoutProgress": 5, "finalExitCodes": [42, 43]},
    )
    env = env_of(built(spec, index=4, incarnation=2))
    assert {name: value for name, value in env.items() if name.startswith("ELASTIC_")} == {
        "ELASTIC_JOB_NAME": "toy",
        "ELASTIC_JOB_UID": UID,
        "ELASTIC_ROLE": "worker",
        "ELASTIC_INDEX": "4",
        "ELASTIC_INCARNATION": "2",
        "ELASTIC_POD_NAME": "toy-worker-4",
        "ELASTIC_MASTER_EPOCH": "3",
        "ELASTIC_NPROC": "3",
        "ELASTIC_PRELOAD": "numpy,torchvision.models",
        "ELASTIC_CHECKPOINT_PATH": "/c",
        "ELASTIC_CHECKPOINT_COMPLETE": "*.done",
        "ELASTIC_CHECKPOINT_SIGNAL": "SIGUSR1",
        "ELASTIC_ALIGN_SECONDS": "7",
        "ELASTIC_GRACE_SECONDS": "1",
        "ELASTIC_STALL_SECONDS": "90",
        "ELASTIC_MAX_FAILURES": "5",
        "ELASTIC_FINAL_EXIT_CODES": "42,43",
        "ELASTIC_STATUS_PORT": "29401",
    }
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (SERVICE_IP, "29400")


def test_a_torchrun_that_is_not_ours_cannot_meet_anybody():
    assert env_of(built())["PET_RDZV_BACKEND"] not in ("c10d", "static", "etcd", "etcd-v2")


def test_what_only_the_cluster_knows_is_looked_up_in_the_cluster():
    sources = {v["name"]: v["valueFrom"] for v in main_of(built())["env"] if "valueFrom" in v}
    assert sources["ELASTIC_TOKEN"] == {"secretKeyRef": {"name": f"toy-elastic-{UID}", "key": "token"}}
    assert sources["ELASTIC_POD_UID"] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert sources["PET_LOCAL_ADDR"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_the_user_may_turn_the_warm_start_off_and_ours_stand_in_front():
    env = main_of(built(elastic(container=make_container(env=[{"name": "ELASTIC_WARM", "value": "0"}]))))["env"]
    assert env[-1] == {"name": "ELASTIC_WARM", "value": "0"}


@pytest.mark.parametrize("own", [None, {}, {"readOnlyRootFilesystem": False}])
def test_where_the_root_can_be_written_nothing_is_moved(own):
    env = env_of(built(elastic(container=make_container(securityContext=own))))
    assert not {"HOME", "TMPDIR"} & env.keys()


def test_with_a_read_only_root_programs_get_a_folder_to_write_unless_the_user_has_one():
    container = make_container(
        securityContext={"readOnlyRootFilesystem": True}, env=[{"name": "HOME", "value": "/home/me"}]
    )
    pod = built(elastic(container=container))
    env = env_of(pod)
    mount = mounts(pod)[env["TMPDIR"]]
    assert "readOnly" not in mount
    assert volumes(pod)[mount["name"]]["emptyDir"] == {}
    assert env["HOME"] == "/home/me"
    assert env["TORCHINDUCTOR_CACHE_DIR"] == env["TMPDIR"]


def test_the_image_is_no_part_of_what_pods_are_compared_by():
    one, other = (
        make_pod(elastic(), settings=BuildSettings(worker_image=image))["metadata"]["annotations"]
        for image in ("a:1", "b:2")
    )
    assert one == other
    assert injector("a")["image"] == "a"


@pytest.mark.parametrize(
    ("users", "settings", "expected"),
    [
        (None, (), None),
        ([{"name": "mine"}], (), ["mine"]),
        (None, ("mirror",), ["mirror"]),
        ([{"name": "mine"}, {"name": "mirror"}], ("mirror", "other", "other"), ["mine", "mirror", "other"]),
    ],
)
def test_the_launchers_image_is_pulled_with_the_settings_secrets_after_the_users_own(users, settings, expected):
    template = make_template(imagePullSecrets=users) if users else make_template()
    elastic = make_spec(template, runtime={"mode": "Elastic"})
    pod = make_pod(elastic, settings=BuildSettings(worker_pull_secrets=settings))
    found = pod["spec"].get("imagePullSecrets")
    assert (found and [secret["name"] for secret in found]) == expected


@pytest.mark.parametrize("runtime", [{"mode": "Torchrun"}, {"mode": "Elastic", "inject": False}])
def test_pods_without_the_launchers_image_get_no_secrets_for_it(runtime):
    pod = make_pod(make_spec(runtime=runtime), settings=BuildSettings(worker_pull_secrets=("mirror",)))
    assert "imagePullSecrets" not in pod["spec"]
