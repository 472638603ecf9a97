"""A thing that is remembered is void when its key differs, and only then."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.memory import Changes, KeyedCache, LastSeen, SingleCache, Turns


def test_a_thing_is_made_again_only_if_its_key_differs_and_an_equal_one_stays_the_same_object() -> None:
    remembered, made = KeyedCache[int, list[str]](), []

    def make(text: str) -> list[str]:
        made.append(text)
        return [text]

    first = remembered.get("a", 1, make, "x")
    assert remembered.get("a", 1, make, "y") is first
    assert remembered.get("a", 2, make, "x") is first
    assert remembered.get("a", 3, make, "y") == ["y"]
    assert remembered.get("b", 3, make, "z") == ["z"]
    assert made == ["x", "x", "y", "z"]


def test_a_single_thing_is_kept_in_the_same_way() -> None:
    one, made = SingleCache[int, list[str] | None](), []

    def make(text: str) -> list[str] | None:
        made.append(text)
        return [text] if text else None

    first = one.get(1, make, "x")
    assert one.get(1, make, "y") is first
    assert one.get(2, make, "x") is first
    assert one.get(3, make, "y") == one.last == ["y"]
    assert (one.get(4, make, ""), one.last) == (None, None)
    assert one.get(4, make, "z") == ["z"]
    one.drop()
    assert one.get(4, make, "z") == ["z"]
    assert made == ["x", "x", "y", "", "z", "z"]


def test_none_is_made_again_each_time_and_what_raises_leaves_the_last_thing() -> None:
    answers, remembered = [None, "good"], KeyedCache[int, str | None]()
    assert [remembered.get("a", 1, answers.pop, 0) for _ in range(2)] == [None, "good"]
    try:
        remembered.get("a", 2, answers.pop, 0)
    except IndexError:
        assert remembered.get("a", 1, answers.pop, 0) == "good"
    else:
        raise AssertionError
    assert remembered.get("a", 2, lambda: None) is None
    assert remembered.peek("a") is None


def test_a_value_differs_at_the_first_look_and_whenever_it_is_not_equal_to_the_last_look() -> None:
    last_seen = LastSeen[tuple[int, ...]]()
    assert [last_seen.changed(value) for value in ((), (), (1,), (1, 2), (1, 2), ())] == [
        True,
        False,
        True,
        True,
        False,
        True,
    ]
    assert last_seen.value == ()


def test_the_next_turn_is_of_the_name_whose_last_turn_is_longest_ago() -> None:
    turns = Turns()
    assert [turns.take(names) for names in ("ba", "ba", "ba", "abc", "ab", "bc")] == ["b", "a", "b", "c", "a", "b"]
    turns.keep_only("ac")
    assert [turns.take("abc") for _ in range(3)] == ["b", "c", "a"]


@dataclass(frozen=True)
class Item:
    name: str


@given(
    st.lists(st.lists(st.sampled_from([Item(name) for name in "abcd" for _ in range(2)]), unique_by=attrgetter("name")))
)
def test_changes_are_the_items_that_are_not_the_same_objects_as_before(tuples: list[list[Item]]) -> None:
    changes, known = Changes[Item](attrgetter("name")), dict[str, Item]()
    for items in tuples:
        gone, new = changes.take(tuple(items))
        assert all(known.pop(item.name) is item for item in gone)
        assert not known.keys() & {item.name for item in new}
        known |= {item.name: item for item in new}
        assert {id(item) for item in known.values()} == {id(item) for item in items}
        assert len(known) == len(items)
