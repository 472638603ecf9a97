"""`quota set`: what its flags say, and what becomes of policies on a real API server, with whose rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from elastic_client.cluster import Cluster
from elastic_client.commands import quota_set
from elastic_client.exits import ClientError, Code
from tests.api.policies import make_flavor, make_policy
from tests.apiserver.jobs_api import accepted
from tests.apiserver.policies_api import Policies, quota
from tests.apiserver.rights import account
from tests.client.conftest import Elastic, Ended, Tenant

ROLE = "elastic-pytorch-quota-admin"
TWO_KINDS = [make_flavor("a100", guaranteed=8), make_flavor("h100", guaranteed=4, borrowing={"limit": 2})]


def wanted(*, namespaces: str | None = None, **amounts: str) -> quota_set.Wanted:
    """What flags say, by the names of their fields."""
    by_name = {"guaranteed": quota_set.GUARANTEED, "limit": quota_set.LIMIT, "weight": quota_set.WEIGHT}
    return quota_set.read_flags({by_name[name]: text.split() for name, text in amounts.items()}, namespaces)


def changed(spec: dict[str, Any], **flags: Any) -> dict[str, Any]:
    return quota_set.changed(spec, wanted(**flags), "vision")


@pytest.mark.parametrize(
    ("spec", "flags", "after", "told"),
    [
        (
            {"flavors": quota(2, limit=4), "priority": 3},
            {"guaranteed": "4"},
            {"flavors": quota(4, limit=4), "priority": 3},
            "is changed: guaranteed 2 -> 4",
        ),
        (
            {"flavors": quota(2, limit=4)},
            {"limit": "none", "weight": "3"},
            {"flavors": [make_flavor(guaranteed=2, borrowing={"weight": 3})]},
            "is changed: borrowing limit 4 -> none; weight 1 -> 3",
        ),
        (
            {"flavors": TWO_KINDS},
            {"guaranteed": "h100=6"},
            {"flavors": [TWO_KINDS[0], {**TWO_KINDS[1], "guaranteed": 6}]},
            "is changed: guaranteed of h100 4 -> 6",
        ),
        (
            {"flavors": [TWO_KINDS[0]]},
            {"guaranteed": "9 h100=1"},
            {"flavors": [make_flavor("a100", guaranteed=9), make_flavor("h100", guaranteed=1)]},
            "is changed: guaranteed of a100 8 -> 9; guaranteed of h100 0 -> 1",
        ),
        (
            {"namespaces": ["a"]},
            {"namespaces": "a, b,a"},
            {"namespaces": ["a", "b"]},
            "is changed: namespaces a -> a, b",
        ),
        ({"namespaces": ["a"]}, {"namespaces": ""}, {}, "is changed: namespaces a -> none"),
        (
            {"flavors": quota(2)},
            {"guaranteed": "2"},
            {"flavors": quota(2)},
            "is as it was: that is what it says already",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_what_a_flag_names_changes_and_is_told(spec, flags, after, told):
    assert changed(spec, **flags) == after
    assert quota_set.difference(spec, after) == told


def test_of_a_new_policy_all_is_told():
    after = changed({}, guaranteed="4", limit="2", namespaces="a")
    assert after == {"flavors": [make_flavor(guaranteed=4, borrowing={"limit": 2})], "namespaces": ["a"]}
    assert quota_set.difference(None, after) == "is created: guaranteed 4; borrowing limit 2; weight 1; namespaces a"


def test_where_there_are_several_kinds_one_must_be_named():
    with pytest.raises(
        ClientError, match=r"--guaranteed 6: policy vision has the kinds of GPU a100, h100; write a100=6"
    ):
        changed({"flavors": TWO_KINDS}, guaranteed="6")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "there is nothing to set: write one of --guaranteed, --borrowing-limit, --weight, --namespaces"),
        (("--guaranteed", "four"), "--guaranteed 'four': write a number, such as 4"),
        (("--guaranteed", "-1"), "--guaranteed '-1': write a number, such as 4"),
        (("--guaranteed", "none"), "--guaranteed 'none': write a number, such as 4"),
        (("--borrowing-limit", "h100=all"), "--borrowing-limit 'h100=all': write a number or none, such as 4"),
        (("--weight", "=3"), "--weight '=3': write a number"),
        (("--namespaces", "team-a,,b"), "--namespaces 'team-a,,b': write names of namespaces with commas"),
    ],
)
def test_a_wrong_value_is_told_by_its_flag(words, told):
    given: dict[quota_set.Field, list[str]] = {field: [] for field in quota_set.FIELDS}
    namespaces = None
    for flag, value in zip(words[::2], words[1::2], strict=True):
        field = next((one for one in given if one.flag == flag), None)
        if field is None:
            namespaces = value
        else:
            given[field].append(value)
    with pytest.raises(ClientError) as wrong:
        quota_set.read_flags(given, namespaces)
    assert wrong.value.code == Code.USAGE
    assert str(wrong.value).startswith(told)


@pytest.fixture
def admin(elastic: Elastic, kubeconfig: Path):
    """`quota set` with all rights."""

    def run(*words: str) -> Ended:
        return elastic("quota", "set", *words, "--kubeconfig", str(kubeconfig))

    return run


def spec_of(policies: Policies, short: str) -> dict[str, Any]:
    found: dict[str, Any] = policies.get(short)["spec"]
    return found


@pytest.mark.apiserver
def test_a_policy_is_created_changed_and_as_it_was(admin, policies: Policies, tenant: Tenant):
    name, namespace = policies.name("vision"), tenant.jobs.namespace
    made = admin(name, "--guaranteed", "4", "--borrowing-limit", "2", "--namespaces", f"{namespace},nowhere-{name}")
    assert made.code == 0
    told = (
        f"policy {name} is created: guaranteed 4; borrowing limit 2; weight 1; namespaces {namespace}, nowhere-{name}"
    )
    assert made.out.startswith(f"{told}; see `kubectl elastic quota describe {name}")
    assert made.line == f"note: there is no namespace nowhere-{name} yet"
    accepted(policies.patch("vision", {"spec": {"priority": 7}}))
    more = admin(name, "--guaranteed", "8", "--borrowing-limit", "none")
    assert "is changed: guaranteed 4 -> 8; borrowing limit 2 -> none;" in more.out
    spec = spec_of(policies, "vision")
    assert (spec["priority"], len(spec["namespaces"])) == (7, 2)
    assert (spec["flavors"][0]["guaranteed"], "limit" in spec["flavors"][0]["borrowing"]) == (8, False)
    assert "is as it was" in admin(name, "--guaranteed", "8").out
    other = admin(policies.name("other"), "--namespaces", namespace)
    whose = "the oldest that names it, or the first by name"
    assert other.line == f"note: policy {name} names {namespace}, too: a namespace belongs to {whose}"
    assert admin(name, "--namespaces", "").code == 0
    assert not spec_of(policies, "vision").get("namespaces")


@pytest.mark.apiserver
def test_a_mistyped_name_makes_no_policy(admin, policies: Policies):
    policies.create("vision", flavors=quota(2))
    name = policies.name("vision")
    ended = admin(name[1:], "--guaranteed", "8")
    assert ended.code == Code.NOT_FOUND
    assert f"did you mean {name}?; to create {name[1:]}, add --namespaces" in ended.line


@pytest.mark.apiserver
def test_a_dry_run_prints_what_apply_takes_and_changes_nothing(admin, policies: Policies, api: httpx.Client):
    policies.create("vision", flavors=quota(2, limit=4), namespaces=["team-a"])
    before, name = policies.get("vision"), policies.name("vision")
    told = admin(name, "--guaranteed", "4", "--dry-run")
    manifest = yaml.safe_load(told.out)
    assert (told.code, told.err, policies.get("vision")) == (0, "", before)
    assert manifest == make_policy(name, namespaces=["team-a"], flavors=quota(4, limit=4))
    accepted(api.put(f"{quota_set.COLLECTION}/{name}", json={**before, "spec": manifest["spec"]}))
    assert spec_of(policies, "vision")["flavors"][0]["guaranteed"] == 4
    new = policies.name("new")
    made = yaml.safe_load(admin(new, "--guaranteed", "4", "--namespaces", "team-b", "--dry-run").out)
    assert made == make_policy(new, flavors=quota(4), namespaces=["team-b"])
    assert api.get(f"{quota_set.COLLECTION}/{new}").status_code == httpx.codes.NOT_FOUND


@pytest.mark.apiserver
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["for good", "dry run"])
def test_what_the_server_refuses_is_told_by_its_field(admin, policies: Policies, dry):
    policies.create("vision", flavors=quota(2))
    ended = admin(policies.name("vision"), "--guaranteed", "2000000", *dry)
    assert ended.code == Code.REFUSED
    assert "spec.flavors[0].guaranteed: Invalid value: 2000000: " in ended.line
    assert spec_of(policies, "vision")["flavors"][0]["guaranteed"] == 2


@pytest.mark.apiserver
def test_a_change_of_somebody_else_meanwhile_is_kept(admin, policies: Policies, monkeypatch: pytest.MonkeyPatch):
    policies.create("vision", flavors=[*quota(2), make_flavor("h100", guaranteed=1)])
    real, patches = Cluster.patch, []

    async def later(self, path, change, **params):
        patches.append(change)
        if len(patches) == 1:
            policies.change("vision", flavors=[*quota(2), make_flavor("h100", guaranteed=5)])
        return await real(self, path, change, **params)

    monkeypatch.setattr(Cluster, "patch", later)
    ended = admin(policies.name("vision"), "--guaranteed", "default=3")
    assert (ended.code, len(patches)) == (0, 2)
    assert [one["guaranteed"] for one in spec_of(policies, "vision")["flavors"]] == [3, 5]


@pytest.mark.apiserver
def test_whoever_lacks_the_right_is_told_which_role_has_it(tenant: Tenant, policies: Policies, api: httpx.Client):
    """A tenant may not even look; with the role `view` in the whole cluster they may look, and not change."""
    policies.create("vision", flavors=quota(2))
    words = ("quota", "set", policies.name("vision"), "--guaranteed", "64")
    blind = tenant(*words)
    assert (blind.code, f"ClusterRoleBinding to the cluster role `{ROLE}`" in blind.line) == (Code.NOT_ALLOWED, True)
    assert "ClusterRoleBinding to the cluster role `view`" in tenant("quota", "list").line
    subject = {"kind": "ServiceAccount", "name": "dev", "namespace": tenant.jobs.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {"metadata": {"name": policies.name("view")}, "roleRef": reference, "subjects": [subject]}
    accepted(api.post(f"{account.RBAC}/clusterrolebindings", json=binding))
    for more in ((), ("--dry-run",)):
        refused = tenant(*words, *more)
        assert refused.code == Code.NOT_ALLOWED
        assert f"ask an administrator for a ClusterRoleBinding to the cluster role `{ROLE}`" in refused.line
    assert spec_of(policies, "vision")["flavors"][0]["guaranteed"] == 2
    api.delete(f"{account.RBAC}/clusterrolebindings/{binding['metadata']['name']}").raise_for_status()
