import pytest

from elastic_api.template import fingerprint
from elastic_operator.build.names import owner_reference
from elastic_operator.build.request import BuildSettings
from tests.api.jobs import make_container, make_template
from tests.build.objects import UID, Owner, make_main, make_pod, make_spec

CLASSES = BuildSettings(master_priority_class="our-master", worker_priority_class="our-worker")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PIN = {"key": "metadata.name", "operator": "In", "values": ["node-a"]}


def pod_of(*containers, role="worker", settings=CLASSES, node="node-a", **pod):
    return make_pod(make_spec(make_template(*containers, **pod)), role=role, node=node, settings=settings)["spec"]


def test_the_pod_has_the_name_and_the_labels_of_its_place():
    metadata = make_pod(role="worker", index=5, incarnation=2)["metadata"]
    assert (metadata["namespace"], metadata["name"]) == ("team-a", "toy-worker-5")
    assert metadata["labels"] == {
        "elastic-pytorch.dev/job-name": "toy",
        "elastic-pytorch.dev/job-uid": UID,
        "elastic-pytorch.dev/role": "worker",
        "elastic-pytorch.dev/index": "5",
        "elastic-pytorch.dev/incarnation": "2",
        "training.kubeflow.org/job-role": "worker",
    }
    assert metadata["annotations"] == {
        "elastic-pytorch.dev/contract": "1",
        "elastic-pytorch.dev/nnodes": "2:4096",
        "elastic-pytorch.dev/template": fingerprint(make_spec(), "worker"),
    }


def test_of_the_templates_metadata_only_labels_and_annotations_are_copied_and_ours_win():
    users = {
        "name": "mine",
        "namespace": "another-teams",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "x", "controller": True}],
        "finalizers": ["example.com/f"],
        "labels": {"team": "vision", "elastic-pytorch.dev/role": "master", "elastic-pytorch.dev/job-uid": "another"},
        "annotations": {"note": "x", "elastic-pytorch.dev/contract": "99"},
    }
    metadata = make_pod(make_spec({**make_template(), "metadata": users}))["metadata"]
    assert (metadata["namespace"], metadata["name"]) == ("team-a", "toy-worker-0")
    assert metadata["ownerReferences"] == [owner_reference(Owner())]
    assert "finalizers" not in metadata
    assert metadata["labels"]["team"] == "vision"
    assert metadata["labels"]["elastic-pytorch.dev/role"] == "worker"
    assert metadata["labels"]["elastic-pytorch.dev/job-uid"] == UID
    assert metadata["annotations"]["note"] == "x"
    assert metadata["annotations"]["elastic-pytorch.dev/contract"] == "1"


def test_kubelets_never_restart_the_containers():
    assert pod_of()["restartPolicy"] == "Never"


def test_services_are_not_put_into_the_environment_unless_the_user_wants_it():
    assert pod_of()["enableServiceLinks"] is False
    assert pod_of(enableServiceLinks=True)["enableServiceLinks"] is True


def test_the_jobs_grace_period_is_the_pods_whatever_the_template_says():
    spec = make_spec(make_template(terminationGracePeriodSeconds=5), elasticity={"gracePeriodSeconds": 90})
    assert make_pod(spec)["spec"]["terminationGracePeriodSeconds"] == 90


def test_a_deleted_pod_is_there_until_its_processes_have_ended_even_without_grace():
    spec = make_spec(elasticity={"gracePeriodSeconds": 0})
    assert make_pod(spec)["spec"]["terminationGracePeriodSeconds"] == 1


def test_each_role_has_its_priority_class():
    assert pod_of(role="master")["priorityClassName"] == "our-master"
    assert pod_of(role="worker")["priorityClassName"] == "our-worker"


@pytest.mark.parametrize("own", [{"priorityClassName": "theirs"}, {"priority": 0}, {"priority": 7}])
def test_a_template_with_a_priority_keeps_it(own):
    pod = pod_of(**own)
    assert {name: pod.get(name) for name in own} == own
    assert pod.get("priorityClassName") != "our-worker"


@pytest.mark.parametrize("own", [{"priorityClassName": "theirs"}, {"priority": 7}, {"preemptionPolicy": "Always"}])
def test_a_pod_that_is_to_have_our_class_has_nothing_of_the_templates_priority(own):
    pod = make_pod(make_spec(make_template(**own)), settings=CLASSES, own_class=True)["spec"]
    assert pod["priorityClassName"] == "our-worker"
    assert {name: pod.get(name) for name in ("priority", "preemptionPolicy")} == {
        "priority": None,
        "preemptionPolicy": None,
    }


def test_without_classes_in_the_settings_the_pods_have_none():
    assert "priorityClassName" not in pod_of(settings=BuildSettings())


def test_a_planned_pod_is_pinned_to_its_node():
    assert pod_of()["affinity"] == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [PIN]}]}}}


def test_an_unplanned_pod_is_left_to_the_scheduler():
    assert "affinity" not in pod_of(node=None)


def test_the_pin_is_added_to_each_alternative_of_the_users():
    zone = {"key": "zone", "operator": "In", "values": ["z1"]}
    field = {"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}
    terms = [{"matchExpressions": [zone]}, {"matchFields": [field]}]
    preferred = [{"weight": 1, "preference": {"matchExpressions": [zone]}}]
    users = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}, "preferredDuring": preferred},
        "podAntiAffinity": {"x": []},
    }
    affinity = pod_of(affinity=users)["affinity"]
    assert affinity["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [
        {"matchExpressions": [zone], "matchFields": [PIN]},
        {"matchFields": [field, PIN]},
    ]
    assert affinity["nodeAffinity"]["preferredDuring"] == preferred
    assert affinity["podAntiAffinity"] == {"x": []}


@pytest.mark.parametrize("empty", [{}, {"matchExpressions": []}, {"matchFields": []}], ids=str)
def test_an_empty_alternative_goes_on_matching_no_node(empty):
    users = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [empty]}}}
    assert pod_of(affinity=users)["affinity"] == users


def test_there_is_shared_memory():
    pod = pod_of()
    assert pod["volumes"] == [{"name": "elastic-shm", "emptyDir": {"medium": "Memory"}}]
    assert pod["containers"][0]["volumeMounts"] == [{"name": "elastic-shm", "mountPath": "/dev/shm"}]


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/", "/dev//shm"])
def test_shared_memory_of_the_users_is_kept(path):
    mounts = [{"name": "mine", "mountPath": path}]
    volumes = [{"name": "mine", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]
    pod = pod_of(make_container(volumeMounts=mounts), volumes=volumes)
    assert (pod["volumes"], pod["containers"][0]["volumeMounts"]) == (volumes, mounts)


def test_the_end_of_the_log_becomes_the_pods_termination_message_unless_set():
    assert make_main()["terminationMessagePolicy"] == "FallbackToLogsOnError"
    own = make_container(terminationMessagePolicy="File")
    assert make_main(own)["terminationMessagePolicy"] == "File"


def test_the_script_and_its_arguments_stay_in_args():
    main = make_main(make_container(args=["train.py", "--lr", "$(LR)"]))
    assert main["args"] == ["train.py", "--lr", "$(LR)"]
    assert main["command"][:2] == ["/bin/sh", "-c"]
    assert len(main["command"]) == 4


def test_a_command_stands_behind_the_script_that_runs_it():
    main = make_main(make_container(command=["bash", "-e", "launch.sh"], args=["--x"]))
    assert main["command"][:2] == ["/bin/sh", "-c"]
    assert main["command"][4:] == ["bash", "-e", "launch.sh"]
    assert main["args"] == ["--x"]


def test_each_role_is_built_from_its_own_template():
    spec = make_spec(master={"template": make_template(make_container(image="registry.example/master:1"))})
    images = {role: make_pod(spec, role=role)["spec"]["containers"][0]["image"] for role in ("master", "worker")}
    assert images == {"master": "registry.example/master:1", "worker": "registry.example/train:1"}
