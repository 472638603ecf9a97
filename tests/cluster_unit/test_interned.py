"""Equal parts of pods are kept once, and stay what they are."""

import msgspec
import pytest

from elastic_operator.cluster import interned, objects

LABELS = {"elastic-pytorch.dev/incarnation": "1"}
TOLERATION = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(interned, "parts", {})


def pod(name, *, gpus="1", claims=False):
    volumes = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}] if claims else []
    spec = {
        "containers": [{"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
        "tolerations": [TOLERATION],
        "volumes": volumes,
    }
    meta = {"name": name, "uid": name, "resourceVersion": "1", "namespace": "a", "labels": LABELS}
    return objects.decode({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, objects.Pod)


def structs_in(thing):
    """The struct and those in it, by id. They must outlive the use of the ids."""
    if isinstance(thing, tuple):
        return {id_: struct for each in thing for id_, struct in structs_in(each).items()}
    if not isinstance(thing, msgspec.Struct):
        return {}
    return {id(thing): thing} | structs_in(msgspec.structs.astuple(thing))


def test_pods_of_one_template_share_all_but_their_names():
    one, two = pod("one"), pod("two")
    assert one.metadata.labels is two.metadata.labels
    assert one.spec.tolerations is two.spec.tolerations
    assert one.spec.containers[0].resources.limits is two.spec.containers[0].resources.limits
    assert (one.metadata.name, two.metadata.name) == ("one", "two")


def test_what_differs_stays_different():
    one, two = pod("one"), pod("two", gpus="2")
    assert [each.spec.containers[0].resources.limits["nvidia.com/gpu"] for each in (one, two)] == ["1", "2"]


def test_parts_that_hold_a_dict_are_shared():
    one, two = pod("one", claims=True), pod("two", claims=True)
    assert one.spec.volumes is two.spec.volumes


def test_a_second_pod_of_a_template_adds_four_structs():
    one, two = structs_in(pod("one", claims=True)), structs_in(pod("two", claims=True))
    assert sorted(type(two[each]).__name__ for each in two.keys() - one) == ["Pod", "PodMeta", "PodSpec", "PodStatus"]


def test_a_status_is_kept_in_a_fraction_of_its_text():
    pods = [{"name": f"job-worker-{i}", "role": "worker", "phase": "Running", "gpus": 1} for i in range(8)]
    packed = objects.Packed({"pods": pods})
    assert packed.unpack() == {"pods": pods}
    assert len(packed.packed) < len(msgspec.json.encode({"pods": pods})) / 2


def test_equal_texts_of_two_specs_are_one_string():
    one, two = (objects.Packed({"image": "registry.example.com/train:1"}).unpack() for _ in "12")
    assert one["image"] is two["image"]


def test_a_spec_nested_hundreds_of_levels_is_unpacked():
    """The API server stores 10,000 levels, and the operator's command raises Python's limit so far."""
    deep: dict[str, object] = {}
    for _ in range(300):
        deep = {"a": deep}
    assert objects.Packed(deep).unpack() == deep


def test_the_memory_of_equal_parts_is_bounded(monkeypatch):
    monkeypatch.setattr(interned, "MAX_PARTS", 50)
    for number in range(200):
        pod("one", gpus=str(number))
        assert len(interned.parts) <= 50
