"""`quota set`: creates a policy, or changes one, and reports the old and the new values.

The API server merges lists by replacing them, so a flavor is changed in the whole list that was read. The patch names
the version that was read. If another write, such as the operator's status, was faster, the policy is read again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from elastic_api.job import API_VERSION
from elastic_api.policy import COLLECTION, KIND, PolicySpec
from elastic_client import screen
from elastic_client.cluster import Cluster, Object
from elastic_client.command import with_cluster
from elastic_client.commands.quota import PolicyName, find_policy
from elastic_client.exits import ClientError, Code
from elastic_client.jobs import check_name
from elastic_client.refusals import QUOTA_ADMIN, VIEWER, ConflictError
from elastic_client.words import is_name

DEFAULT_FLAVOR = "default"
"""The flavor of a cluster without named flavors."""
NO_LIMIT = "none"
MOST_TRIES = 5
STRICT = {"fieldValidation": "Strict"}
KEPT_METADATA = ("labels", "annotations")
_AMOUNT = re.compile(r"(?:(?P<flavor>[^=]+)=)?(?P<number>\d{1,9}|none)")

Guaranteed = Annotated[
    list[str] | None,
    typer.Option("--guaranteed", metavar="[FLAVOR=]N", help="GPUs that its namespaces get whenever they request them."),
]
BorrowingLimit = Annotated[
    list[str] | None,
    typer.Option("--borrowing-limit", metavar="[FLAVOR=]N", help="GPUs beyond that, while idle; none: no limit."),
]
Weight = Annotated[
    list[str] | None,
    typer.Option("--weight", metavar="[FLAVOR=]N", help="Part of idle GPUs, relative to other policies' weights."),
]
Namespaces = Annotated[
    str | None, typer.Option("--namespaces", metavar="A,B", help="All namespaces that share these GPUs.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the manifest; the API server checks it, and nothing changes.")
]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a flavor that a flag sets; `absent` is the value that counts and is shown if the field is missing."""

    flag: str
    path: tuple[str, ...]
    label: str
    absent: int | None

    def of(self, flavor: Mapping[str, Any]) -> int | None:
        """The field's value in a flavor."""
        inner: Any = flavor
        for key in self.path:
            inner = (inner or {}).get(key)
        found: int | None = self.absent if inner is None else inner
        return found


GUARANTEED = Field("--guaranteed", ("guaranteed",), "guaranteed", 0)
LIMIT = Field("--borrowing-limit", ("borrowing", "limit"), "borrowing limit", None)
WEIGHT = Field("--weight", ("borrowing", "weight"), "weight", 1)
FIELDS = (GUARANTEED, LIMIT, WEIGHT)


@dataclass(frozen=True, slots=True)
class Amount:
    """The value of one flag: the flavor, "" if it names none, and the amount; None is no limit."""

    field: Field
    text: str
    flavor: str
    number: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values of all flags; `namespaces` is None if these do not change."""

    amounts: tuple[Amount, ...]
    namespaces: tuple[str, ...] | None


def set_quota(
    policy: PolicyName,
    *,
    guaranteed: Guaranteed = None,
    borrowing_limit: BorrowingLimit = None,
    weight: Weight = None,
    namespaces: Namespaces = None,
    dry_run: DryRun = False,
) -> None:
    """Create a quota, or change one: other values stay. FLAVOR is the kind of GPU, if there are several."""
    check_name(policy, kind="policy", example="team-a")
    flags = zip(FIELDS, (guaranteed, borrowing_limit, weight), strict=True)
    wanted = read_flags({field: texts or [] for field, texts in flags}, namespaces)
    with_cluster(functools.partial(_set, policy=policy, wanted=wanted, dry_run=dry_run))


async def _set(cluster: Cluster, *, policy: str, wanted: Wanted, dry_run: bool) -> None:
    before, spec = await _written(cluster, policy, wanted, dry_run=dry_run)
    if dry_run:
        screen.console().print(_as_yaml(policy, before, spec), end="", soft_wrap=True)
        return
    message = f"policy {policy} {difference(before['spec'] if before else None, spec)}"
    screen.console().print(f"{message}; see {cluster.command(f'quota describe {policy}')}", soft_wrap=True)
    await _remark(cluster, policy, wanted.namespaces or ())


def read_flags(given: Mapping[Field, list[str]], namespaces: str | None) -> Wanted:
    """The values of the flags. Raises ClientError, USAGE for a wrong value, and without any flag."""
    amounts = tuple(_amount(field, text) for field, texts in given.items() for text in texts)
    wanted = Wanted(amounts, None if namespaces is None else _names(namespaces))
    if not amounts and namespaces is None:
        flags = ", ".join(field.flag for field in FIELDS)
        raise ClientError(Code.USAGE, f"there is nothing to set: write one of {flags}, --namespaces")
    return wanted


def changed(spec: Mapping[str, Any], wanted: Wanted, policy: str) -> dict[str, Any]:
    """The spec with the values of the flags. Raises ClientError, USAGE if a flavor must be named."""
    after: dict[str, Any] = deepcopy({**spec})
    flavors: list[dict[str, Any]] = after.setdefault("flavors", [])
    for amount in wanted.amounts:
        name = amount.flavor or _only_flavor(amount, [one["name"] for one in spec.get("flavors") or []], policy)
        flavor = next((one for one in flavors if one["name"] == name), None)
        if flavor is None:
            flavors.append(flavor := {"name": name})
        *above, last = amount.field.path
        inner = flavor
        for key in above:
            inner[key] = inner = {**(inner.get(key) or {})}
        inner[last] = amount.number
        if amount.number is None:
            del inner[last]
    if wanted.namespaces is not None:
        after["namespaces"] = [*wanted.namespaces]
    return {key: value for key, value in after.items() if value != []}


def difference(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> str:
    """The difference, as in `is changed: guaranteed 2 -> 4`; None stands for a policy that did not exist."""
    parts = []
    old = {one["name"]: one for one in (before or {}).get("flavors") or []}
    flavors = after.get("flavors") or []
    for flavor in flavors:
        of = "" if len(flavors) == 1 and flavor["name"] == DEFAULT_FLAVOR else f" of {flavor['name']}"
        for field in FIELDS:
            was, is_ = field.of(old.get(flavor["name"], {})), field.of(flavor)
            if was != is_ or before is None:
                parts.append(f"{field.label}{of} {_step(before, _shown(was), _shown(is_))}")
    here, there = (", ".join((spec or {}).get("namespaces") or ["none"]) for spec in (before, after))
    if here != there:
        parts.append(f"namespaces {_step(before, here, there)}")
    if before is None:
        return f"is created: {'; '.join(parts)}"
    return f"is changed: {'; '.join(parts)}" if parts else "is as it was: that is what it says already"


def _step(before: Mapping[str, Any] | None, was: str, is_: str) -> str:
    return is_ if before is None else f"{was} -> {is_}"


def _shown(number: int | None) -> str:
    return NO_LIMIT if number is None else str(number)


def _amount(field: Field, text: str) -> Amount:
    """The amount in the text of a flag. Raises ClientError, USAGE."""
    match = _AMOUNT.fullmatch(text.strip())
    none = " or none" if field.absent is None else ""
    if match is None or (match["number"] == NO_LIMIT and not none):
        message = f"write a number{none}, such as 4, or with the kind of GPU, such as h100=4"
        raise ClientError(Code.USAGE, f"{field.flag} {text!r}: {message}")
    return Amount(field, text, match["flavor"] or "", None if match["number"] == NO_LIMIT else int(match["number"]))


def _names(text: str) -> tuple[str, ...]:
    """The namespaces in the text; "" is none, as for a parent of other policies. Raises ClientError, USAGE."""
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    for name in names:
        if not is_name(name):
            message = "write names of namespaces with commas between them, such as team-a,team-a-dev"
            raise ClientError(Code.USAGE, f"--namespaces {text!r}: {message}")
    return tuple(dict.fromkeys(names))


def _only_flavor(amount: Amount, names: list[str], policy: str) -> str:
    """The flavor if none is named. Raises ClientError, USAGE if there are several."""
    if len(names) > 1:
        message = f"policy {policy} has the kinds of GPU {', '.join(names)}; write {names[0]}={amount.text}"
        raise ClientError(Code.USAGE, f"{amount.field.flag} {amount.text}: {message}")
    return names[0] if names else DEFAULT_FLAVOR


async def _found(cluster: Cluster, policy: str, *, creates: bool) -> Object | None:
    """The present policy; None if it is to be created. Raises ClientError, NOT_FOUND for a mistyped name.

    A new policy without namespaces would take its guarantee from all other teams, and no namespace could use it.
    """
    try:
        return await find_policy(cluster, policy)
    except ClientError as error:
        if error.code == Code.NOT_ALLOWED:  # a role that allows reading would not allow changes
            raise ClientError(error.code, str(error).replace(f"`{VIEWER}`", f"`{QUOTA_ADMIN}`")) from None
        if error.code != Code.NOT_FOUND:
            raise
        if creates:
            return None
        raise ClientError(error.code, f"{error}; to create {policy}, add --namespaces") from None


async def _written(
    cluster: Cluster, policy: str, wanted: Wanted, *, dry_run: bool
) -> tuple[Object | None, dict[str, Any]]:
    """The old policy, and its new spec. Raises ClientError if the API server refuses."""
    tries = MOST_TRIES
    while True:
        before = await _found(cluster, policy, creates=wanted.namespaces is not None)
        spec = changed(before["spec"] if before else {}, wanted, policy)
        tries -= 1
        try:
            await _write(cluster, policy, before, spec, {**STRICT, **({"dryRun": "All"} if dry_run else {})})
        except ConflictError:
            if not tries:
                raise
        else:
            return before, spec


async def _write(
    cluster: Cluster, policy: str, before: Object | None, spec: Mapping[str, Any], params: Mapping[str, str]
) -> None:
    """Write the policy. Raises ConflictError if it has changed meanwhile."""
    if before is None:
        await cluster.post(COLLECTION, _manifest(policy, {}, spec), **params)
        return
    gone = {key: None for key in before["spec"] if key not in spec}
    version = {"resourceVersion": before["metadata"]["resourceVersion"]}
    await cluster.patch(f"{COLLECTION}/{policy}", {"metadata": version, "spec": {**spec, **gone}}, **params)


async def _remark(cluster: Cluster, policy: str, namespaces: Collection[str]) -> None:
    """Warn of values that the API server accepts and that have no effect, if the user may read the objects."""
    if not namespaces:
        return
    others = [one for one in (await cluster.get(COLLECTION))["items"] if one["metadata"]["name"] != policy]
    for name in namespaces:
        if also := [one["metadata"]["name"] for one in others if name in (one["spec"].get("namespaces") or ())]:
            whose = "the oldest that names it, or the first by name"
            screen.note(f"note: policy {also[0]} names {name}, too: a namespace belongs to {whose}")
        try:
            await cluster.get(f"/api/v1/namespaces/{name}")
        except ClientError as error:
            if error.code == Code.NOT_FOUND:
                screen.note(f"note: there is no namespace {name} yet")


def _manifest(policy: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": policy, **metadata}, "spec": {**spec}}


def _as_yaml(policy: str, before: Object | None, spec: Mapping[str, Any]) -> str:
    """The policy as YAML for `kubectl apply -f`."""
    from elastic_client.convert.manifest import LAST_APPLIED, to_yaml

    meta = before["metadata"] if before else {}
    kept = {key: {k: v for k, v in (meta.get(key) or {}).items() if k != LAST_APPLIED} for key in KEPT_METADATA}
    return to_yaml(_manifest(policy, {key: value for key, value in kept.items() if value}, _as_written(spec)))


def _as_written(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec without defaults, in the order of the reference; unchanged if it has fields of a newer release."""
    try:
        written = PolicySpec.model_validate(spec)
    except ValidationError:
        return spec
    return written.model_dump(mode="json", by_alias=True, exclude_defaults=True)
