"""What holds for the pod of every template that parsing accepts."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from elastic_api.parse import parse_spec
from elastic_api.template import main_container
from elastic_operator.build.request import BuildSettings
from tests.build.objects import make_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OWNED = {
    "restartPolicy",
    "enableServiceLinks",
    "terminationGracePeriodSeconds",
    "priorityClassName",
    "affinity",
    "containers",
    "volumes",
}
OWNED_BY_MAIN = {"env", "command", "volumeMounts", "terminationMessagePolicy"}


words = st.text(st.characters(codec="utf-8"), max_size=8)
names = st.text("abcdefgh", min_size=1, max_size=4)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda of: st.lists(of, max_size=3) | st.dictionaries(words, of, max_size=3),
    max_leaves=6,
)
unknown = st.dictionaries(names.map("x-{}".format), json, max_size=2)


def fields(required=None, **optional):
    """Mappings with the required fields, some of the optional ones (some null), and some that nobody knows."""
    known = st.fixed_dictionaries(
        required or {}, optional={name: st.none() | strategy for name, strategy in optional.items()}
    )
    return st.builds(lambda known, unknown: {**unknown, **known}, known, unknown)


variables = fields(
    {"name": names.map(str.upper) | st.sampled_from(["PYTHONUNBUFFERED", "PET_MAX_RESTARTS"])}, value=words
)
mounts = fields({"name": names, "mountPath": st.sampled_from(["/dev/shm", "/dev/shm/", "/data", "relative"])})
containers = fields(
    {"image": names, "args": st.lists(words, min_size=1, max_size=3)},
    command=st.lists(words, max_size=2),
    env=st.lists(variables, max_size=3),
    volumeMounts=st.lists(mounts, max_size=2),
    resources=fields(limits=st.dictionaries(st.just("nvidia.com/gpu"), st.integers(0, 8))),
    terminationMessagePolicy=st.sampled_from(["File", "FallbackToLogsOnError"]),
)
container_lists = st.lists(containers, min_size=1, max_size=3).flatmap(
    lambda made: st.permutations(["pytorch", "aside", "beside"]).map(
        lambda order: [{**container, "name": name} for container, name in zip(made, order, strict=False)]
    )
)
requirements = st.builds(
    lambda operator, value: {"key": "metadata.name", "operator": operator, "values": [value]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["node-a", "node-b"]),
)
terms = st.lists(fields(matchFields=st.lists(requirements, max_size=2)), max_size=3)
affinities = fields(nodeAffinity=fields(**{REQUIRED: st.fixed_dictionaries({"nodeSelectorTerms": terms})}))
string_maps = st.dictionaries(names, words, max_size=2)
metadata = st.fixed_dictionaries({}, optional=dict.fromkeys(("labels", "annotations"), st.none() | string_maps))
# Of a template, and of its metadata, all fields are known: others are refused.
templates = st.fixed_dictionaries(
    {
        "spec": fields(
            {"containers": container_lists},
            affinity=affinities,
            volumes=st.lists(fields({"name": names}), max_size=2),
            priorityClassName=names,
            restartPolicy=st.just("Never"),
            enableServiceLinks=st.booleans(),
            terminationGracePeriodSeconds=st.integers(0, 100),
            schedulerName=names,
        )
    },
    optional={"metadata": st.none() | metadata},
)
CLASSES = BuildSettings(master_priority_class="m", worker_priority_class="w")


def parsed(template):
    return parse_spec({"spec": {"minReplicas": 1, "maxReplicas": 2, "template": template}})


def accepts(terms, node):
    """Whether node selector terms over the node's name match, as kube-scheduler reads them."""

    def fits(requirement):
        return (node in requirement["values"]) == (requirement["operator"] == "In")

    return any(term.get("matchFields") and all(map(fits, term["matchFields"])) for term in terms)


def terms_of(pod):
    return pod.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])


def without(mapping, names):
    return {name: value for name, value in mapping.items() if name not in names}


@given(templates, st.sampled_from(["master", "worker"]), st.sampled_from([None, "node-a"]))
def test_building_changes_nothing_in_the_template(template, role, node):
    spec = parsed(template)
    before = copy.deepcopy(spec.template)
    pod = make_pod(spec, role=role, node=node, settings=CLASSES)
    assert spec.template == before
    assert pod == make_pod(spec, role=role, node=node, settings=CLASSES)


@given(templates, st.sampled_from(["master", "worker"]))
def test_what_is_not_ours_passes_through_untouched(template, role):
    users = parsed(template).template
    pod = make_pod(parsed(template), role=role, settings=CLASSES)["spec"]
    theirs, made = main_container(users), main_container({"spec": pod})
    assert without(pod, OWNED) == without(users["spec"], OWNED)
    assert without(made, OWNED_BY_MAIN) == without(theirs, OWNED_BY_MAIN)
    pairs = zip(pod["containers"], users["spec"]["containers"], strict=True)
    assert all(one == other for one, other in pairs if one is not made)


@given(templates)
def test_what_the_user_gave_is_kept_at_the_end_of_what_is_extended(template):
    users = parsed(template).template
    pod = make_pod(parsed(template))["spec"]
    theirs, made = main_container(users), main_container({"spec": pod})
    own = theirs.get("env", [])
    assert made["env"][len(made["env"]) - len(own) :] == own
    command = theirs.get("command", [])
    assert made["command"][4:] == command
    assert pod.get("volumes", [])[: len(users["spec"].get("volumes", []))] == users["spec"].get("volumes", [])


@given(templates)
def test_no_variable_of_ours_stands_beside_one_of_the_users(template):
    theirs = {variable["name"] for variable in main_container(parsed(template).template).get("env", [])}
    env = main_container(make_pod(parsed(template)))["env"]
    ours = env[: len(env) - len(main_container(parsed(template).template).get("env", []))]
    assert not theirs & {variable["name"] for variable in ours}


@given(templates)
def test_a_pinned_pod_fits_the_planned_node_and_no_other_and_only_where_the_user_lets_it(template):
    users = parsed(template).template["spec"]
    made = terms_of(make_pod(parsed(template), node="node-a")["spec"])
    wanted = terms_of(users)
    assert accepts(made, "node-a") == (not wanted or accepts(wanted, "node-a"))
    assert not accepts(made, "node-b")


@given(templates)
def test_exactly_one_volume_is_mounted_for_shared_memory(template):
    main = main_container(make_pod(parsed(template)))
    before = [m for m in main_container(parsed(template).template).get("volumeMounts", []) if "shm" in m["mountPath"]]
    after = [m for m in main["volumeMounts"] if "shm" in m["mountPath"]]
    assert after == (before or [{"name": "elastic-shm", "mountPath": "/dev/shm"}])


def elastic(template):
    runtime = {"mode": "Elastic"}
    return parse_spec({"spec": {"minReplicas": 1, "maxReplicas": 2, "template": template, "runtime": runtime}})


@given(templates, st.sampled_from(["master", "worker"]))
def test_in_elastic_mode_too_only_what_is_ours_is_changed_and_what_is_extended_is_kept(template, role):
    spec = elastic(template)
    before = copy.deepcopy(spec.template)
    pod = make_pod(spec, role=role, settings=CLASSES)["spec"]
    assert spec.template == before
    theirs, made = main_container(before), main_container({"spec": pod})
    assert without(pod, OWNED | {"initContainers"}) == without(before["spec"], OWNED | {"initContainers"})
    assert without(made, OWNED_BY_MAIN) == without(theirs, OWNED_BY_MAIN)
    own = theirs.get("env") or []
    assert made["env"][len(made["env"]) - len(own) :] == own
    assert pod["initContainers"][1:] == (before["spec"].get("initContainers") or [])
    assert pod["volumes"][: len(before["spec"].get("volumes") or [])] == (before["spec"].get("volumes") or [])
    paths = [mount["mountPath"] for mount in made["volumeMounts"][len(theirs.get("volumeMounts") or []) :]]
    assert len(set(paths)) == len(paths)
