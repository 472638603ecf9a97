"""Jobs at random: specs that fit the CRD's schema, and templates of pods, both then spoilt in up to three places."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from elastic_api import crd
from tests.api.anything import FULL, ODD, nested, places, replaced
from tests.api.jobs import make_job, make_template, with_gpus

Schema = dict[str, Any]
Path = tuple[Any, ...]

SPEC: Schema = crd.JOB.manifest()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
BASES = st.sampled_from([make_template(with_gpus(1)), make_template(with_gpus(2)), FULL["spec"]["template"]])
MOST_SPOILT = 3

HOSTILE = [
    "\u202e\ufeff",
    "\U0001f600" * 20,
    "\x00",
    "a\nb",
    "../../etc",
    "$(WORLD_SIZE)",
    "{{ .Values }}",
    "' OR 1=1 --",
    "x" * 5000,
    "-1",
    "1e999",
    "NaN",
    "true",
    "null",
    "~",
    "0x10",
    "9" * 40,
]
NUMBERS = [-(2**63), -(2**31), -1, 0, 1, 63, 64, 253, 1024, 4096, 65536, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 1e300]


def fuzzed_jobs() -> st.SearchStrategy[dict[str, Any]]:
    """Jobs of all kinds of wrongness, and right ones among them."""
    return fuzzed_specs().map(lambda spec: {**make_job(), "spec": spec})


@st.composite
def fuzzed_specs(draw: st.DrawFn) -> dict[str, Any]:
    """A spec that fits the schema, spoilt in some places."""
    spec = draw(fitting(SPEC))
    for _ in range(draw(st.integers(0, MOST_SPOILT))):
        spec = draw(spoilt(spec))
    return spec


def fitting(schema: Schema) -> st.SearchStrategy[Any]:
    """What fits a node of the schema; bounds are likely, and so is what is near the lower one."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return templates()
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from(["auto", 1, 2, 1024, 0, "2", "gpu"])
    match schema["type"]:
        case "object":
            return _objects(schema)
        case "array":
            return st.lists(fitting(schema["items"]), min_size=schema.get("minItems", 0), max_size=4)
        case "integer":
            least, most = schema.get("minimum", 0), schema.get("maximum", 2**31)
            return st.one_of(st.integers(least, least + 3), st.sampled_from([least, most]))
        case "boolean":
            return st.sampled_from([False, False, False, True])
        case "string":
            return st.sampled_from(schema["enum"]) if "enum" in schema else st.sampled_from(["", "no-such"])
    raise AssertionError(f"the schema has a type that this knows nothing of: {schema}")


def _objects(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: fitting(child) for name, child in schema["properties"].items()}
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: field for name, field in fields.items() if name in required},
        optional={name: field for name, field in fields.items() if name not in required},
    )


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """A pod template with some of what the operator reads in one."""
    template = draw(BASES)
    optional = [place for place in places(template) if len(place) > 1 and place[:2] != ("spec", "containers")]
    for place in draw(st.lists(st.sampled_from(optional), max_size=6)) if optional else ():
        template = _without(template, place)
    return template


@st.composite
def spoilt(draw: st.DrawFn, value: Any) -> Any:
    """`value`, changed in one place."""
    place = draw(st.sampled_from(places(value)[1:] or [()]))
    how = draw(st.sampled_from(["other", "other", "gone", "typo", "more", "nested", "twice"]))
    if not place:
        return value
    at = _at(value, place)
    match how:
        case "other":
            return replaced(value, place, draw(anything()))
        case "gone":
            return _without(value, place)
        case "typo" if isinstance(place[-1], str):
            name = draw(misspelt(place[-1]))
            return replaced(_without(value, place), place[:-1], {**_at(_without(value, place), place[:-1]), name: at})
        case "more" if isinstance(at, dict):
            return replaced(value, place, {**at, draw(st.sampled_from(["x", "", "a.b/c", *HOSTILE])): draw(anything())})
        case "twice" if isinstance(at, list):
            return replaced(value, place, at * draw(st.sampled_from([2, 50])))
    return replaced(value, place, nested(at, draw(st.sampled_from([1, 2, 30, 70]))))


def anything() -> st.SearchStrategy[Any]:
    """JSON that is seldom right anywhere."""
    return st.one_of(st.sampled_from(ODD), st.sampled_from(NUMBERS), st.sampled_from(HOSTILE), st.text(max_size=9))


def misspelt(name: str) -> st.SearchStrategy[str]:
    """A name with a letter less, a letter more, or in another case."""
    return st.sampled_from([name[:-1], name + "s", name.upper(), name.capitalize(), f" {name}"])


def _at(value: Any, place: Path) -> Any:
    for step in place:
        value = value[step]
    return value


def _without(value: Any, place: Path) -> Any:
    """`value` without what stands at the place, if there is such a place."""
    try:
        parent = _at(value, place[:-1]).copy()
        del parent[place[-1]]
    except (KeyError, IndexError, TypeError, AttributeError):
        return value
    return replaced(value, place[:-1], parent)
