"""News of objects in any order: the highest resourceVersion wins, and what is gone stays gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.cluster.objects import Pod
from elastic_operator.cluster.store import TOMBSTONE_SECONDS, Store
from tests.cluster_unit.build import pod


def recorded(store: Store[Pod]) -> list[tuple[str, str]]:
    changes: list[tuple[str, str]] = []

    def note(old: Pod | None, new: Pod | None) -> None:
        changes.append((old.metadata.resource_version if old else "-", new.metadata.resource_version if new else "-"))

    store.subscribe(note)
    return changes


def test_an_older_state_of_an_object_is_ignored():
    store = Store[Pod]()
    changes = recorded(store)
    store.observe(pod(rv=9))
    store.observe(pod(rv=10, phase="Failed"))
    store.observe(pod(rv=9))
    assert store.get("uid-p").status.phase == "Failed"
    assert changes == [("-", "9"), ("9", "10")]


@pytest.mark.parametrize(
    ("news", "there"),
    [
        ([5, ("7",), 6], False),
        ([5, ("7",), 8], True),
        ([5, (), 500], False),
        ([("7",), 5], False),
        ([9, ("8",)], False),
    ],
    ids=[
        "it does not come back by an older event",
        "what a selector lost comes back by a newer event",
        "without a version it is gone for good",
        "heard of before the creation it wins",
        "it removes even what a write told newer",
    ],
)
def test_a_deletion(news, there):
    """Versions that are seen, and in brackets those of deletions."""
    store = Store[Pod]()
    for item in news:
        store.observe_deleted("uid-p", *item) if isinstance(item, tuple) else store.observe(pod(rv=item))
    assert ("uid-p" in store) == there
    assert (store.named("p", "a") is not None) == there
    assert len(store) == there


def test_tombstones_are_given_up_after_minutes():
    now = 0.0
    store = Store[Pod](now=lambda: now)
    store.observe_deleted("uid-p", "7")
    now = TOMBSTONE_SECONDS + 1
    store.observe_deleted("other", "8")
    store.observe(pod(rv=6))
    assert "uid-p" in store


def test_a_late_event_of_a_forgotten_tombstone_is_news_without_another_deletion():
    now = 0.0
    store = Store[Pod](now=lambda: now)
    store.observe_deleted("uid-p", "7")
    now = TOMBSTONE_SECONDS + 1
    store.observe(pod("other", rv=8))
    assert not store._tombstones
    store.observe(pod(rv=6))
    assert "uid-p" in store


def test_a_list_removes_objects_that_it_lacks_unless_they_are_newer():
    store = Store[Pod]()
    store.observe(pod("old", rv=3))
    store.observe(pod("kept", rv=4))
    store.observe(pod("just-created", rv=12))
    store.replace([pod("kept", rv=4), pod("new", rv=9)], "10")
    assert {obj.metadata.name for obj in store} == {"kept", "new", "just-created"}


def test_an_object_of_a_list_older_than_its_deletion_stays_gone():
    store = Store[Pod]()
    store.observe(pod(rv=3))
    store.observe_deleted("uid-p", "11")
    store.replace([pod(rv=3)], "10")
    assert len(store) == 0


def test_a_namesake_that_is_newer_replaces_the_one_whose_deletion_is_still_to_come():
    store = Store[Pod]()
    changes = recorded(store)
    store.observe(pod(uid="one", rv=3))
    store.observe(pod(uid="two", rv=6))
    store.observe(pod(uid="one", rv=4))
    store.observe_deleted("one", "5")
    assert store.named("p", "a").metadata.uid == "two"
    assert [obj.metadata.uid for obj in store] == ["two"]
    assert changes == [("-", "3"), ("3", "-"), ("-", "6")]


def test_after_a_reset_older_versions_count_again():
    store = Store[Pod]()
    store.observe(pod("kept", rv=90))
    store.observe(pod("lost", rv=91))
    store.observe_deleted("uid-undone", "95")
    changes = recorded(store)
    changes.clear()
    store.reset([pod("kept", rv=3), pod("undone", rv=2)])
    assert changes == [("91", "-"), ("90", "3"), ("-", "2")]
    assert store.named("lost", "a") is None
    store.observe(pod("undone", rv=4))
    assert store.get("uid-undone").metadata.resource_version == "4"


@pytest.mark.parametrize("was_known", [True, False], ids=["a known object", "an object that only its deletion named"])
def test_a_reset_of_one_namespace_keeps_the_deletions_of_the_others(was_known):
    store = Store[Pod]()
    if was_known:
        store.observe(pod(namespace="b", rv=90))
    store.observe_deleted("uid-p", "95", namespace="" if was_known else "b")
    store.observe_deleted("uid-undone", "96", namespace="a")
    store.reset([pod("kept", namespace="a", rv=3)], within="a")
    store.observe(pod(namespace="b", rv=94))
    assert "uid-p" not in store
    store.observe(pod("undone", namespace="a", rv=4))
    assert "uid-undone" in store


def test_an_object_that_a_reset_lists_is_news_although_its_deletion_named_no_namespace():
    store = Store[Pod]()
    store.observe_deleted("uid-undone")
    store.reset([pod("undone", namespace="a", rv=3)], within="a")
    store.observe(pod("undone", namespace="a", rv=4))
    assert store.get("uid-undone").metadata.resource_version == "4"


def test_a_listener_that_raises_is_counted_and_hides_the_object_from_no_other_listener(caplog):
    heard: list[str] = []

    def raises_at_p(_old: Pod | None, new: Pod | None) -> None:
        heard.append(new.metadata.name)
        if new.metadata.name == "p":
            raise KeyError("made up")

    store, errors = Store[Pod](), []
    store.on_error = lambda: errors.append("one")
    store.observe(pod(rv=5))
    store.observe(pod("q", rv=5))
    store.subscribe(raises_at_p)
    changes = recorded(store)
    store.observe(pod(rv=6))
    assert changes == [("-", "5"), ("-", "5"), ("5", "6")]
    assert heard == ["p", "q", "p"]
    assert "object=a/p" in caplog.text
    assert len(errors) == 2


def test_a_listener_hears_of_what_was_there_before_it():
    store = Store[Pod]()
    store.observe(pod(rv=3))
    assert recorded(store) == [("-", "3")]


@given(st.permutations(range(8)), st.data())
def test_any_order_of_news_ends_in_the_same_state(order, data):
    """Creation, changes, deletion and re-creation of one name, heard in any order, some of them twice."""
    first = [pod(uid="one", rv=rv) for rv in (1, 2, 3)]
    second = [pod(uid="two", rv=rv) for rv in (5, 6)]
    third = [pod("q", uid="three", rv=7)]
    news = [*first, ("one", "4"), *second, *third, second[1]]
    store = Store[Pod]()
    repeated = data.draw(st.lists(st.sampled_from(order), max_size=4))
    for i in [*order, *repeated]:
        item = news[i]
        store.observe_deleted(*item) if isinstance(item, tuple) else store.observe(item)
    assert {obj.metadata.uid: obj.metadata.resource_version for obj in store} == {"two": "6", "three": "7"}
    assert store.named("p", "a").metadata.uid == "two"


def test_a_listener_hears_nothing_after_its_end():
    store = Store[Pod]()
    heard: list[Pod | None] = []
    end = store.subscribe(lambda _, new: heard.append(new))
    store.observe(pod(rv=9))
    end()
    store.observe(pod(rv=10))
    assert [one.metadata.resource_version for one in heard] == ["9"]
