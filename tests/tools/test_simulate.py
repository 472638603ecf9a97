"""`elastic-operator simulate`: who would start, grow, shrink or stop, from manifests on top of a snapshot."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.team import DEFAULT_POLICY, Quota, Team
from elastic_operator.plan.planner import Planner
from elastic_operator.read.shapes import Shapes
from elastic_operator.settings import Settings
from elastic_operator.tools.apply_changes import apply_changes
from elastic_operator.tools.cluster_snapshot import SnapshotJob
from elastic_operator.tools.manifests import Changes, read_changes
from elastic_operator.tools.snapshot_view import SnapshotView
from tests.api.policies import make_flavor
from tests.plan.allocate.world import GPU, make_job, make_node
from tests.plan.policies.builders import labelled, make_policy
from tests.tools.build import job, policy
from tests.tools.snapshots import make_cluster_snapshot, waiting_for_nodes

PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 100,
}


def full():
    """One node of 4 GPUs, all of them with the job `old`."""
    return make_cluster_snapshot([make_node("n1", 4)], [make_job("old", 1, 4, on="n1 n1 n1 n1", age=60)])


def shared():
    """Two policies, one below the other, and a namespace each; and a policy beside them."""
    quota = make_flavor(guaranteed=2, borrowing={"limit": 1, "weight": 3}, lending={"limit": 1})
    policies = (
        make_policy("research", created=1.0),
        make_policy("vision", created=2.0, parent="research", namespaces=["team-a"], flavors=[quota]),
        make_policy("speech", created=3.0, namespaces=["team-b"]),
    )
    return replace(full(), policies=policies, namespaces=(labelled("team-a"), labelled("team-d", org="y")))


def effects(desk, snapshot, *arguments):
    """What becomes of each job, by name: (effect, before, after)."""
    said = json.loads(desk.says("simulate", desk.snapshot(snapshot), "-o", "json", *arguments))
    return {e["name"]: (e["effect"], e["before"], e["after"]) for e in said["jobs"]}


def after_changes(snapshot, file, *, delete=()):
    """What the allocator decides from after the changes."""
    changes = read_changes(file, delete, gpu_resources=snapshot.settings.gpu_resources)
    return seen(apply_changes(snapshot, changes, Settings()).snapshot)


def seen(snapshot):
    """What the allocator decides from."""
    return Planner().observe(SnapshotView(snapshot))[1]


def changed_teams(desk, snapshot, *manifests, delete=()):
    """Teams and namespaces after the changes."""
    after = after_changes(snapshot, desk.manifests(*manifests) if manifests else None, delete=delete)
    return {team.name: team for team in after.teams.listed}, dict(after.teams.covered)


# -- jobs --------------------------------------------------------------------------------------------------------------


def test_without_a_change_all_stays_as_it_is(desk):
    assert effects(desk, full()) == {"old": ("same", 4, 4)}


def test_a_job_whose_pods_wait_for_new_nodes_stays_as_it_is_or_stops(desk):
    assert effects(desk, waiting_for_nodes()) == {"a": ("same", 2, 2)}
    assert effects(desk, waiting_for_nodes(), "--delete", "job/team-a/a") == {"a": ("stops", 2, 0)}


def test_a_job_that_is_added_starts_and_one_that_has_a_surplus_shrinks_for_it(desk):
    file = desk.manifests(job("new", low=2, high=2))
    assert effects(desk, full(), "--change", file) == {"new": ("starts", 0, 2), "old": ("shrinks", 4, 2)}


def test_a_job_that_is_edited_keeps_its_pods_and_its_age(desk):
    file = desk.manifests(job("old", low=1, high=2))
    assert effects(desk, full(), "--change", file) == {"old": ("shrinks", 4, 2)}
    before, after = (s.jobs[0] for s in (seen(full()), after_changes(full(), file)))
    kept = ("uid", "members", "created", "is_admitted", "running_since", "waiting_since", "priority")
    assert [getattr(after, what) for what in kept] == [getattr(before, what) for what in kept]


def test_a_job_that_goes_or_is_suspended_stops_and_others_grow(desk):
    two = make_cluster_snapshot(
        [make_node("n1", 4)], [make_job("old", 1, 4, on="n1 n1", age=60), make_job("other", 1, 4, on="n1 n1", age=50)]
    )
    expected = {"old": ("grows", 2, 4), "other": ("stops", 2, 0)}
    assert effects(desk, two, "--delete", "job/team-a/other") == expected
    assert effects(desk, two, "--change", desk.manifests(job("other", high=4, suspend=True))) == expected


def test_a_suspended_job_starts_when_the_changes_resume_it(desk):
    node, (old,) = make_node("n1", 4), make_cluster_snapshot([], [make_job("old", 1, 4)]).jobs
    spec = old.facts.spec.model_copy(update={"suspend": True})
    suspended = make_cluster_snapshot([node], [SnapshotJob(replace(old.facts, spec=spec))])
    assert effects(desk, suspended) == {"old": ("same", 0, 0)}
    assert effects(desk, suspended, "--change", desk.manifests(job("old", high=4))) == {"old": ("starts", 0, 4)}


def test_an_edit_mends_a_spec_that_could_not_be_read(desk):
    (old,) = make_cluster_snapshot([], [make_job("old", 1, 4)]).jobs
    broken = make_cluster_snapshot(
        [make_node("n1", 4)], [SnapshotJob(replace(old.facts, spec=None, invalid="Mend it."))]
    )
    assert effects(desk, broken, "--change", desk.manifests(job("old", high=2))) == {"old": ("starts", 0, 2)}


def test_a_list_as_kubectl_prints_it_counts_as_its_items(desk):
    listed = {"apiVersion": "v1", "kind": "List", "items": [job("new", low=2, high=2)]}
    assert effects(desk, full(), "--change", desk.manifests(listed))["new"] == ("starts", 0, 2)


def test_the_class_of_a_new_job_is_in_the_snapshot_or_in_the_changes(desk):
    new = desk.manifests(job("new", low=4, high=4, priorityClassName="high"))
    assert effects(desk, replace(full(), priority_classes=(make_class("high", 100),)), "--change", new)["new"] == (
        "starts",
        0,
        4,
    )
    new = desk.manifests(job("new", low=4, high=4, priorityClassName="high"), PRIORITY_CLASS)
    assert effects(desk, full(), "--change", new)["new"] == ("starts", 0, 4)


def test_a_job_whose_class_does_not_exist_has_priority_0_and_a_note_says_so(desk):
    file = desk.manifests(job("new", low=4, high=4, priorityClassName="high"))
    said = json.loads(desk.says("simulate", desk.snapshot(full()), "-o", "json", "--change", file))
    assert [e["effect"] for e in said["jobs"] if e["name"] == "new"] == ["same"]
    [note] = said["notes"]
    assert note.startswith("team-a/new: spec.priorityClassName is 'high', and there is no such PriorityClass.")


def make_class(name, value, policy="Never", *, default=False):
    """A PriorityClass."""
    return objects.PriorityClass(objects.ClassMeta(name, f"uid-{name}", "1"), value, default, policy)


def changed_job(desk, manifest, *classes, settings=None, known=()):
    """That job after its manifest is applied to a snapshot with these classes."""
    snapshot = replace(make_cluster_snapshot([make_node("n1", 4)], known), priority_classes=classes)
    changes = read_changes(desk.manifests(manifest), (), gpu_resources=(GPU,))
    (changed,) = apply_changes(snapshot, changes, settings or Settings()).snapshot.jobs
    return changed


@pytest.mark.parametrize(("after", "priority"), [("high", 100), ("low", -5), ("", 7)])
def test_an_edited_job_has_the_priority_of_the_class_that_it_names(desk, after, priority):
    classes = make_class("high", 100), make_class("low", -5), make_class("usual", 7, default=True)
    edited = changed_job(
        desk,
        job("old", high=2, **({"priorityClassName": after} if after else {})),
        *classes,
        known=[make_job("old", 1, 4, priority=100)],
    )
    assert edited.facts.context.priority == priority


CLASSES = (
    make_class("elastic-pytorch-master", 11),
    make_class("calm", 50),
    make_class("rude", 60, "PreemptLowerPriority"),
    make_class("usual", 7, default=True),
)


def with_pods(**pod):
    """A job's manifest with these fields in the spec of its pods."""
    made = job("new", high=2)
    made["spec"]["template"]["spec"].update(pod)
    return made


@pytest.mark.parametrize("known", [(), [make_job("new", 1, 4)]])
@pytest.mark.parametrize(
    ("manifest", "settings", "expected"),
    [
        (with_pods(), Settings(), {"lowest": 0}),
        (with_pods(priorityClassName="calm"), Settings(), {"lowest": 50}),
        (with_pods(priorityClassName="rude"), Settings(), {"lowest": 0}),
        (
            with_pods(),
            Settings(master_priority_class_name="", worker_priority_class_name="calm"),
            {"lowest": 7},
        ),
        (
            with_pods(initContainers=[{"name": "big", "image": "x", "resources": {"requests": {"cpu": "3"}}}]),
            Settings(),
            {"cpu": 3000},
        ),
        (job("new", high=2, runtime={"mode": "Elastic"}), Settings(), {"cpu": 10}),
        (with_pods(hostNetwork=True), Settings(), {"ports": 1}),
    ],
)
def test_a_changed_jobs_pods_have_the_shapes_that_the_operator_gives_them(desk, manifest, settings, expected, known):
    changed = changed_job(desk, manifest, *CLASSES, settings=settings, known=known)
    classes = Store()
    for each in CLASSES:
        classes.observe(each)
    operators = Shapes(settings, claims=Store(), volumes=Store(), classes=classes).shape_of(changed.facts)
    assert changed.shape == operators
    master = operators.master
    values = {"lowest": operators.lowest_priority, "cpu": master.requests.get("cpu"), "ports": len(master.host_ports)}
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("named", "allowed", "starts", "instead"),
    [
        ("high", ["high"], True, ""),
        ("high", ["low"], False, "Write one of low, or leave"),
        ("system-node-critical", [], False, "Write one whose name does not begin with 'system-'"),
    ],
)
def test_a_class_that_the_settings_do_not_let_jobs_name_counts_as_nothing(desk, named, allowed, starts, instead):
    new, of_class = job("new", low=4, high=4, priorityClassName=named), {**PRIORITY_CLASS, "metadata": {"name": named}}
    settings = desk.file("settings.yaml", {"jobPriorityClassNames": allowed})
    change = ("--change", desk.manifests(new, of_class), "--settings", settings)
    said = json.loads(desk.says("simulate", desk.snapshot(full()), "-o", "json", *change))
    assert [e["after"] for e in said["jobs"] if e["name"] == "new"] == [4 if starts else 0]
    assert [
        f"team-a/new: spec.priorityClassName is '{named}', which jobs may not name" in n for n in said["notes"]
    ] == ([] if starts else [True])
    assert instead in "".join(said["notes"])


def test_the_text_shows_who_is_affected_with_the_reason_and_counts_the_others(desk):
    file = desk.manifests(job("new", low=2, high=2))
    lines = desk.says("simulate", desk.snapshot(full()), "--change", file).splitlines()
    assert lines[0].split() == ["JOB", "TEAM", "EFFECT", "PODS", "GPUS", "LIMITED", "BY"]
    assert "shrinks" in next(line for line in lines if line.startswith("team-a/old"))
    assert any(line.startswith("  The job gets 2 of 4 pods.") for line in lines)
    assert lines[-1] == "1 starts, 0 grows, 1 shrinks, 0 stops, 0 same"


def test_the_text_leaves_out_who_is_not_affected_and_its_columns_are_aligned(desk):
    snapshot = make_cluster_snapshot(
        [make_node("n1", 4)], [make_job("a-job-with-a-long-name", 4, 4), make_job("b", 1, 4)]
    )
    lines = desk.says("simulate", desk.snapshot(snapshot), "--delete", "job/team-a/a-job-with-a-long-name").splitlines()
    assert (
        len({line.index(word) for line, word in ((lines[0], "EFFECT"), (lines[1], "stops"), (lines[3], "starts"))}) == 1
    )
    unaffected = desk.says("simulate", desk.snapshot(full()), "--change", desk.manifests(job("none", suspend=True)))
    assert unaffected == "0 starts, 0 grows, 0 shrinks, 0 stops, 2 same\n"


def test_gpus_are_counted_by_pod(desk):
    file = desk.manifests(job("new", low=1, high=1, gpus=2))
    said = json.loads(desk.says("simulate", desk.snapshot(full()), "--change", file, "-o", "json"))
    assert {e["name"]: (e["gpus_before"], e["gpus_after"]) for e in said["jobs"]} == {"new": (0, 2), "old": (4, 2)}


def test_a_guarantee_that_is_given_moves_gpus_from_who_has_none_to_who_has_it(desk):
    two = make_cluster_snapshot(
        [make_node("n1", 4)],
        [make_job("old", 1, 4, on="n1 n1 n1 n1", age=60), replace(make_job("poor", 1, 3), namespace="team-b")],
    )
    before = effects(desk, two)
    file = desk.manifests(policy("b", "team-b", flavors=[{"name": "default", "guaranteed": 3}]))
    after = effects(desk, two, "--change", file)
    assert (before["poor"][2], after["poor"][2]) == (2, 3)
    assert (before["old"][2], after["old"][2]) == (2, 1)


# -- policies ----------------------------------------------------------------------------------------------------------


def test_a_policy_that_is_added_leaves_the_others_as_they_are(desk):
    before = seen(shared())
    teams, covered = changed_teams(desk, shared(), policy("nobody"))
    assert {name: team for name, team in teams.items() if name != "nobody"} == {t.name: t for t in before.teams.listed}
    assert covered == before.teams.covered


def test_a_policy_that_is_applied_again_is_replaced_and_keeps_its_age(desk):
    manifest = policy("speech", "team-b", "team-c", flavors=[{"name": "default", "guaranteed": 3}])
    teams, covered = changed_teams(desk, shared(), manifest)
    assert teams["speech"] == Team("speech", created=3.0, quotas={"default": Quota(guaranteed=3)})
    assert covered == {"team-a": "vision", "team-b": "speech", "team-c": "speech"}


def test_a_policy_that_is_deleted_leaves_its_namespaces_without_one(desk):
    teams, covered = changed_teams(desk, shared(), delete=["policy/vision"])
    assert (sorted(teams), covered) == (["research", "speech"], {"team-b": "speech"})


def test_the_team_of_the_namespaces_without_a_policy_stays(desk):
    rest = Team(DEFAULT_POLICY, has_policy=False)
    snapshot = replace(shared(), settings=replace(shared().settings, default_parents=(rest,)))
    teams, _ = changed_teams(desk, snapshot, policy("new", "team-c"), delete=["policy/vision"])
    assert sorted(teams) == ["default policy", "new", "research", "speech"]
    assert teams[DEFAULT_POLICY] == rest


def test_what_cannot_be_as_written_is_noted(desk):
    file = desk.manifests(policy("new", "team-a", parent="nobody", namespaceSelector={}))
    said = json.loads(desk.says("simulate", desk.snapshot(shared()), "--change", file, "-o", "json"))
    notes = " ".join(said["notes"])
    assert "Namespace team-a belongs to the older policy 'vision'." in notes
    assert "spec.parent: 'nobody'" in notes
    assert "note: new: " in desk.says("simulate", desk.snapshot(shared()), "--change", file)


def test_a_selector_chooses_namespaces_by_the_labels_that_they_have(desk):
    manifest = policy("new", namespaceSelector={"matchLabels": {"org": "y"}})
    assert changed_teams(desk, shared(), manifest)[1]["team-d"] == "new"


def test_a_selector_chooses_namespaces_by_the_labels_that_the_changes_give_them(desk):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-c", "labels": {"org": "x"}}}
    manifest = policy("new", namespaceSelector={"matchLabels": {"org": "x"}})
    assert changed_teams(desk, shared(), manifest, namespace)[1]["team-c"] == "new"


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"kind": "Pod"}, "changes.yaml: document 1: kind: 'Pod': must be ElasticPyTorchJob, GPUQuotaPolicy"),
        ([1], "changes.yaml: document 1: kind: None: must be"),
        (policy("p") | {"apiVersion": "v1"}, "apiVersion: 'v1': must be elastic-pytorch.dev/v1beta1"),
        (policy("p") | {"metadata": {}}, "GPUQuotaPolicy: metadata.name: must be present"),
        (policy("p", flavors=[{"name": "default", "guaranteed": -1}]), "spec.flavors[0].guaranteed: -1: must be at"),
        (job("j", low=3, high=2), "ElasticPyTorchJob j: spec.maxReplicas: 2: must be at least minReplicas"),
    ],
)
def test_a_manifest_that_cannot_be_is_told_with_its_place_field_and_remedy(desk, body, message):
    [line] = desk.refuses("simulate", desk.snapshot(full()), "--change", desk.manifests(body))
    assert message in line


def test_changes_that_are_no_yaml_are_refused(desk):
    [line] = desk.refuses("simulate", desk.snapshot(full()), "--change", desk.file("c", "a: [1"))
    assert "c: is not YAML: " in line


@pytest.mark.parametrize("name", ["old", "job/", "job/a/b/c", "policy/a/b", "pod/old", "policy/"])
def test_what_is_to_be_deleted_has_a_kind_and_a_name(desk, name):
    [line] = desk.refuses("simulate", desk.snapshot(full()), "--delete", name)
    assert f"--delete: '{name}': must be job/NAMESPACE/NAME or policy/NAME" in line


def test_what_is_to_be_deleted_is_there(desk):
    lines = desk.refuses("simulate", desk.snapshot(full()), "--delete", "gpuq/x", "--delete", "eptj/old")
    assert lines == [
        "elastic-operator: --delete: 'job/default/old': must be a job of the snapshot",
        "elastic-operator: --delete: 'policy/x': must be a policy of the snapshot",
    ]


def test_no_changes_are_no_change():
    assert seen(apply_changes(shared(), Changes(), Settings()).snapshot) == seen(shared())
