"""What Kubernetes objects mean to the planner."""

from __future__ import annotations

import pytest

from elastic_operator.plan.facts import node as model
from elastic_operator.plan.facts.job import LastOutput, MainContainer, OwnPod
from elastic_operator.plan.facts.requirements import Load
from elastic_operator.read import convert
from elastic_worker import contract
from tests.cluster_unit.build import node, pod

CREATED = 1767225600.0


def own(**fields) -> OwnPod:
    return convert.own_pod(pod(**fields), Load({}), role="worker", index=3)


@pytest.mark.parametrize(
    ("role", "epoch", "read"),
    [
        ("master", "3", (3, "{}")),
        ("master", "x", (None, "{}")),
        ("master", "9" * 99, (None, "{}")),
        ("worker", "3", (None, "")),
    ],
)
def test_the_master_s_number_and_what_it_was_told_are_read_of_masters_only(role, epoch, read):
    notes = {"elastic-pytorch.dev/master-epoch": epoch, "elastic-pytorch.dev/membership": "{}"}
    found = convert.own_pod(pod(annotations=notes), Load({}), role=role, index=0)
    assert (found.master_epoch, found.membership) == read


def container_status(name: str = "c", **state) -> dict:
    return {"containerStatuses": [{"name": name, "state": state}]}


def test_requests_are_counted_as_the_scheduler_counts_them():
    spec = {
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"name": "init", "resources": {"requests": {"cpu": "3"}}},
        ],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}, {"name": "d"}],
        "overhead": {"cpu": "50m"},
    }
    assert convert.requests_of(pod(spec=spec)) == {"cpu": 3150, "memory": 2**30, "pods": 1}


def test_a_request_of_the_whole_pod_replaces_the_sum():
    assert convert.requests_of(pod(cpu="1", spec={"resources": {"requests": {"cpu": "4"}}}))["cpu"] == 4000


def test_ports_of_containers_and_sidecars_are_taken_and_those_of_init_containers_are_not():
    def container(name: str, port: int, **fields) -> dict:
        return {"name": name, "ports": [{"containerPort": 1, "hostPort": port, "hostIP": "0.0.0.0"}], **fields}

    spec = {
        "containers": [container("c", 80), {"name": "d", "ports": [{"containerPort": 5}]}],
        "initContainers": [container("s", 81, restartPolicy="Always"), container("i", 82)],
    }
    assert convert.host_ports_of(pod(spec=spec)) == {("", "TCP", 80), ("", "TCP", 81)}


def affinity(*nodes: str) -> dict:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [n]}]} for n in nodes]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (affinity("n1"), "n1"),
        (affinity("n1", "n1"), "n1"),
        (affinity("n1", "n2"), None),
        (affinity(), None),
        ({"affinity": {}}, None),
        ({}, None),
    ],
)
def test_a_pod_is_pinned_where_every_term_names_the_same_node(spec, expected):
    assert convert.pinned_node(pod(spec=spec)) == expected


def test_where_a_pod_is_bound_counts_more_than_where_it_is_pinned():
    assert convert.node_of(pod(node="n2", spec=affinity("n1"))) == "n2"


@pytest.mark.parametrize(
    "reason", ["OutOfcpu", "OutOfnvidia.com/gpu", "UnexpectedAdmissionError", "NodeAffinity", "Preempting"]
)
def test_pods_that_the_cluster_refused_or_ended_were_disrupted(reason):
    status = {"reason": reason, "message": "why"}
    assert own(phase="Failed", status=status).disrupted == f"{reason}: why"


def test_a_pod_that_a_node_under_pressure_did_not_admit_was_refused():
    said = "The node had condition: [DiskPressure]. "
    refused = own(phase="Failed", status={"reason": "Evicted", "message": said})
    assert (refused.refused, refused.disrupted) == (True, f"Evicted: {said}")


@pytest.mark.parametrize(
    "said",
    [
        'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". ',
        'Container pytorch exceeded its local ephemeral storage limit "1Gi". ',
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
    ],
)
def test_a_pod_that_outgrew_a_limit_of_its_own_was_not_disrupted_but_failed(said):
    ended = container_status(terminated={"exitCode": 137, "reason": "Error"})
    failed = own(phase="Failed", status={**ended, "reason": "Evicted", "message": said})
    assert (failed.disrupted, failed.refused) == ("", False)
    assert (failed.main.exit_code, failed.main.reason, failed.main.message) == (137, "Evicted", said)


def test_the_last_lines_after_a_launcher_s_termination_message_are_read_from_the_pod():
    """In Elastic mode nobody reads a log (163)."""
    said = "rank 1 failed\nLast lines of rank 3 of toy-worker-2 (exit code -9):\n| loss inf"
    main = own(phase="Failed", status=container_status(terminated={"exitCode": 93, "message": said})).main
    assert main.message == "rank 1 failed"
    assert main.last_output == LastOutput("toy-worker-2", -9, 3, ("loss inf",))


@pytest.mark.parametrize("reason", ["NodeShutdown", "Terminated", "Shutdown"])
def test_pods_that_a_shutdown_of_their_node_ended_were_disrupted(reason):
    assert own(phase="Failed", status={"reason": reason}).disrupted == reason


def test_a_drain_disrupts_before_the_pod_has_ended():
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
    assert own(status={"conditions": [target]}).disrupted == "evicted, as by a drain of its node: evicting"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"phase": "Failed", "status": {"reason": "DeadlineExceeded"}},
        {"phase": "Failed", "status": container_status(terminated={"exitCode": 1, "reason": "Error"})},
        {"phase": "Failed", "status": {"conditions": [{"type": "DisruptionTarget", "status": "False"}]}},
        {"deletionTimestamp": "2026-01-01T00:02:00Z"},
    ],
)
def test_a_failure_of_the_program_or_a_deletion_is_no_disruption(fields):
    assert own(**fields).disrupted == ""


def test_a_pod_being_deleted_is_so_since_its_deletion_was_asked_for():
    deleted = own(deletionTimestamp="2026-01-01T00:02:00Z", deletionGracePeriodSeconds=90)
    assert (deleted.deleting_since, deleted.grace_seconds) == (CREATED + 30, 90.0)
    assert own().deleting_since is None


def test_the_scheduler_s_message_is_kept_while_the_pod_waits():
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available",
        "lastTransitionTime": "2026-01-01T00:00:10Z",
    }
    waiting = own(phase="Pending", status={"conditions": [condition]})
    assert (waiting.unschedulable, waiting.unschedulable_since) == ("0/2 nodes are available", CREATED + 10)
    assert own(node="n1", status={"conditions": [condition]}).unschedulable == ""


def unplaced(reason: str, gates: tuple[str, ...] = ()) -> OwnPod:
    """A pod that is not scheduled for that reason."""
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "why"}
    named = [{"name": gate} for gate in gates]
    spec = {"containers": [{"name": "c"}], "schedulingGates": named}
    return own(phase="Pending", spec=spec, status={"conditions": [condition]})


@pytest.mark.parametrize(
    ("reason", "gates", "message"),
    [
        ("SchedulingGated", ("a.example/quota", "b.example/topology"), ""),
        ("SchedulingGated", (), ""),  # its gates have just gone, and kube-scheduler has not looked at it yet
        ("Unschedulable", ("a.example/quota",), ""),  # what is said of it is old
        ("Unschedulable", (), "why"),
        ("SchedulerError", (), ""),  # kube-scheduler failed, and tries the pod again
        ("", (), "why"),
    ],
)
def test_no_scheduler_has_tried_to_place_a_pod_that_waits_for_its_gates(reason, gates, message):
    found = unplaced(reason, gates)
    assert (found.unschedulable, found.gates) == (message, gates)


def test_an_error_of_the_scheduler_is_kept_with_its_message_while_the_pod_waits():
    assert (unplaced("SchedulerError").scheduler_error, unplaced("Unschedulable").scheduler_error) == ("why", "")


@pytest.mark.parametrize(("reason", "message"), [("Unschedulable", "why"), ("SchedulerError", ""), ("", "why")])
def test_room_is_made_for_a_pod_of_others_only_if_its_scheduler_says_that_it_finds_none(reason, message):
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "why"}
    assert convert.scheduler_messages(pod(status={"conditions": [condition]}))[0] == message


def test_the_main_container_is_the_one_called_pytorch_else_the_first():
    spec = {"containers": [{"name": "sidecar"}, {"name": "pytorch"}]}
    status = container_status("pytorch", running={"startedAt": "2026-01-01T00:00:05Z"})
    assert own(spec=spec, status=status).main.running_since == CREATED + 5
    assert own(status=container_status(waiting={"reason": "ImagePullBackOff", "message": "m"})).main.waiting_reason == (
        "ImagePullBackOff"
    )
    assert own(status=container_status("sidecar", running={})).main == MainContainer()


def test_a_container_before_the_main_one_that_cannot_start_is_what_that_waits_for():
    waits = container_status(waiting={"reason": "PodInitializing"})
    done = {"name": "first", "state": {"terminated": {"exitCode": 0}}}
    init = {"name": "second", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}}
    main = own(status=waits | {"initContainerStatuses": [done, init]}).main
    assert (main.waiting_container, main.waiting_reason, main.waiting_message) == ("second", "ErrImagePull", "m")
    main = own(status=waits | {"initContainerStatuses": [done]}).main
    assert (main.waiting_container, main.waiting_reason) == ("c", "PodInitializing")


STAGED = [{"type": "PodReadyToStartContainers", "status": "True"}]
RUNS = {"name": "copy", "state": {"running": {"startedAt": "2026-01-01T00:00:10Z"}}}
ENDED = {"name": "copy", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:25:10Z"}}}
SIDECAR = {"initContainers": [{"name": "mount", "restartPolicy": "Always"}, {"name": "copy"}]}
CRASHES = {"name": "mount", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}


@pytest.mark.parametrize(
    ("said", "on_its_way", "since"),
    [
        ({"initContainerStatuses": [RUNS]}, True, 10),
        ({"initContainerStatuses": [ENDED], "conditions": STAGED}, True, 25 * 60 + 10),
        ({"conditions": STAGED}, True, None),
        ({"conditions": [STAGED[0] | {"status": "False"}]}, False, None),
        ({}, False, None),
    ],
    ids=["init container runs", "it has ended", "the image is pulled", "volumes are not there", "nothing is said"],
)
def test_a_pod_is_on_its_way_while_an_init_container_runs_or_only_an_image_is_missing(said, on_its_way, since):
    waits = container_status(waiting={"reason": "PodInitializing"})
    main = own(node="n1", status=waits | said).main
    assert (main.is_on_its_way, main.waiting_since) == (on_its_way, None if since is None else CREATED + since)


def test_a_pod_without_its_image_waits_for_the_image_since_volumes_and_network_exist():
    staged = [STAGED[0] | {"lastTransitionTime": "2026-01-01T00:40:00Z"}]
    waits = container_status(waiting={"reason": "ErrImagePull"})
    assert own(node="n1", status=waits | {"conditions": staged}).main.waiting_since == CREATED + 40 * 60
    lost = [staged[0] | {"status": "False"}]
    assert own(node="n1", status=waits | {"conditions": lost}).main.waiting_since is None
    ahead = waits | {"conditions": staged, "startTime": "2026-01-01T00:30:00Z"}
    assert own(node="n1", status=ahead).main.waiting_since == CREATED + 10 * 60, "its clock may be half an hour ahead"
    later = waits | {"conditions": staged, "initContainerStatuses": [ENDED]}
    assert own(node="n1", status=later).main.waiting_since == CREATED + 40 * 60


def test_the_main_container_waits_for_a_crashing_sidecar_unless_an_init_container_runs():
    waits = container_status(waiting={"reason": "PodInitializing"}) | {"conditions": STAGED}
    spec = {**SIDECAR, "containers": [{"name": "c"}]}
    main = own(node="n1", spec=spec, status=waits | {"initContainerStatuses": [CRASHES]}).main
    assert (main.waiting_container, main.waiting_reason, main.is_on_its_way) == ("mount", "CrashLoopBackOff", False)
    main = own(node="n1", spec=spec, status=waits | {"initContainerStatuses": [CRASHES, RUNS]}).main
    assert (main.waiting_container, main.is_on_its_way) == ("c", True)


def test_a_sidecar_that_runs_is_no_init_container_at_work():
    said = container_status(waiting={"reason": "ErrImagePull"}) | {"initContainerStatuses": [RUNS | {"name": "mount"}]}
    main = own(node="n1", spec={**SIDECAR, "containers": [{"name": "c"}]}, status=said).main
    assert (main.waiting_reason, main.is_on_its_way, main.waiting_since) == ("ErrImagePull", False, CREATED + 10)


def test_when_a_pod_got_its_node_is_told_by_its_condition():
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}
    assert own(node="n1", status={"conditions": [condition]}).bound_since == CREATED + 10
    assert own(node="n1", status={}).bound_since is None


def test_an_exit_is_told_with_its_code_and_its_message():
    end = {"exitCode": 137, "reason": "OOMKilled", "message": "m", "startedAt": None, "finishedAt": None}
    main = own(status=container_status(terminated=end)).main
    assert (main.exit_code, main.reason, main.message, main.finished_at) == (137, "OOMKilled", "m", None)


@pytest.mark.parametrize(
    ("seen", "since", "finished"),
    [("2026-01-01T00:00:01Z", CREATED + 5, CREATED + 5), ("2025-12-31T23:30:01Z", CREATED, None)],
    ids=["right", "half an hour behind"],
)
def test_times_of_a_node_whose_clock_is_behind_are_not_believed(seen, since, finished):
    at = "2026-01-01T00:00:05Z"
    runs = container_status(running={"startedAt": at}) | {"startTime": seen}
    ended = container_status(terminated={"exitCode": 0, "finishedAt": at}) | {"startTime": seen}
    assert own(status=runs).main.running_since == since
    assert own(status=ended).main.finished_at == finished


def test_labels_and_annotations_of_ours_are_read_and_odd_ones_are_not_believed():
    fields = {
        "labels": {"elastic-pytorch.dev/incarnation": "4", "other": "x"},
        "annotations": {"elastic-pytorch.dev/nnodes": "2:8"},
    }
    assert (own(**fields).incarnation, own(**fields).nnodes) == (4, (2, 8))


@pytest.mark.parametrize(
    ("incarnation", "nnodes"),
    [("-x", "many"), ("9" * 63, f"{'9' * 5000}:1"), ("²", "²:3"), ("", "1:")],
    ids=["words", "digits", "superscripts", "nothing"],
)
def test_odd_labels_and_annotations_of_ours_are_not_believed(incarnation: str, nnodes: str):
    labels, annotations = {contract.LABEL_INCARNATION: incarnation}, {contract.ANNOTATION_NNODES: nnodes}
    odd = own(labels=labels, annotations=annotations)
    assert (odd.incarnation, odd.nnodes) == (0, None)


def test_a_node_is_told_in_the_planner_s_units():
    taint = {"key": "k", "effect": "NoSchedule"}
    known = convert.node_facts(node(gpus=4, spec={"unschedulable": True, "taints": [taint]}))
    assert known.allocatable == {"nvidia.com/gpu": 4, "cpu": 8000, "pods": 110}
    assert known.taints == (model.Taint("k", "NoSchedule"),)
    assert (known.ready, known.unschedulable) == (True, True)


@pytest.mark.parametrize("state", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_so_since_its_condition_changed(state):
    condition = {"type": "Ready", "status": state, "lastTransitionTime": "2026-01-01T00:00:07Z"}
    assert convert.unready_since(node(status={"conditions": [condition]})) == CREATED + 7


def test_a_node_that_never_spoke_is_not_ready():
    assert not convert.node_facts(node(status={})).ready
