"""The operator is granted what it uses, and uses what it is granted: no rule could be left out, and none is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import eventually
from tests.apiserver.policies_api import Policies
from tests.apiserver.reclaim.lab import Notebooks
from tests.apiserver.rights.account import NAMESPACE, Installed, Rule
from tests.apiserver.rights.conftest import Install, Start
from tests.apiserver.rights.requests import Right, Use, refusals, uses
from tests.apiserver.rights.scenario import Day
from tests.kit.wait import WaitRanOutError, until

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240)]

HEARD_SECONDS = 10.0
"""In so long the API server's authorizer hears that a role has changed; mostly in a tenth of a second."""


OURS = "elastic-pytorch.dev"
NEVER = (
    *(Use(Right(verb, OURS, "elasticpytorchjobs"), "default") for verb in ("create", "update", "patch")),
    *(Use(Right(verb, "", "secrets"), "default") for verb in ("get", "list", "delete")),
    Use(Right("update", OURS, "elasticpytorchjobs/status"), "default"),
    Use(Right("get", "", "configmaps"), NAMESPACE),
    Use(Right("delete", "", "services"), "default"),
    Use(Right("create", "coordination.k8s.io", "leases"), "default"),
    Use(Right("update", "coordination.k8s.io", "leases"), NAMESPACE),
    Use(Right("patch", "", "nodes"), ""),
    Use(Right("delete", "", "namespaces"), ""),
    Use(Right("list", "apiextensions.k8s.io", "customresourcedefinitions"), ""),
)
"""What whoever has its token must not be able to do, even if it were of use; of leases, to another than its own."""


@pytest.fixture
def day(world: World, new_namespace: Callable[[], Jobs], watcher: Proxy, start: Start) -> Day:
    """A day of operators that serve all namespaces."""
    notebooks = Notebooks(world.api, new_namespace().namespace)
    return Day(world, notebooks, Policies(world.api), watcher, start)


def uses_of(rule: Rule, used: set[Use]) -> set[Use]:
    """What of the used rights this rule grants."""
    rights = rule.rights()
    return {use for use in used if use.right in rights and rule.place in ("", use.namespace)}


def needed_after_removal(installed: Installed, rule: Rule, used: set[Use]) -> list[Use]:
    """What is refused without that rule."""
    mine = sorted(uses_of(rule, used))
    installed.without(rule)
    try:
        return [use for use in mine if not still_may(installed, use, rule.name)]
    finally:
        installed.restore(rule)


def still_may(installed: Installed, use: Use, name: str) -> bool:
    """Whether the right is still there when the API server has had time to hear of the change."""
    try:
        until("a refusal", lambda: not installed.may(use.right, use.namespace, name=name), seconds=HEARD_SECONDS)
    except WaitRanOutError:
        return True
    return False


def check(installed: Installed, watcher: Proxy) -> None:
    """What was used in a day is what is granted; each rule by itself cannot be done without."""
    used = uses(watcher.log)
    assert refusals(watcher.log) == []
    rights = installed.granted()
    assert sorted(map(str, {use.right for use in used} - rights)) == [], "used, and granted by nobody knows whom"
    assert sorted(map(str, rights - {use.right for use in used})) == [], "granted and not used"
    for rule in installed.rules():
        mine = uses_of(rule, used)
        assert mine, f"{rule}: nobody uses it here"
        assert needed_after_removal(installed, rule, used) == sorted(mine), rule


def test_some_rights_are_never_granted(install: Install) -> None:
    installed = install()
    assert [use for use in NEVER if installed.may(use.right, use.namespace, name="another")] == []


def test_each_right_is_used_and_none_is_missing(install: Install, day: Day) -> None:
    installed = install()
    day.live()
    check(installed, day.watcher)


@pytest.mark.extended
def test_each_right_over_some_namespaces_is_used_and_none_is_missing(install: Install, day: Day, start: Start) -> None:
    namespace = day.world.jobs.namespace
    installed = install("--set", f"settings.watchNamespaces={{{namespace}}}")
    day.start = lambda: start(WATCH_NAMESPACES=f"[{namespace}]")
    day.live()
    check(installed, day.watcher)
    elsewhere = {use.right for use in uses(day.watcher.log) if use.namespace == day.notebooks.namespace}
    assert {right.resource for right in elsewhere} == {"pods/status", "events"}
    writes = {use for use in uses(day.watcher.log) if use.right.verb not in ("get", "list", "watch")}
    assert {use.right.resource for use in writes if not use.namespace} == {"gpuquotapolicies/status"}
    assert not installed.may(Right("create", "", "pods"), day.notebooks.namespace)
    assert not installed.may(Right("list", "", "services"), "")


@pytest.mark.extended
def test_missing_right_disables_its_feature_and_the_job_reports_it(
    install: Install, world: World, start: Start
) -> None:
    installed = install()
    rule = next(rule for rule in installed.rules() if Right("create", "", "pods") in rule.rights())
    installed.without(rule)
    start()
    world.start(elastic_job("toy", small=1, big=1))

    def told() -> bool:
        return any("cannot create" in condition["message"] for condition in world.status().get("conditions", ()))

    eventually("a word of what is missing", told, report=world.report)
    assert not world.pods("toy")
    installed.restore(rule)
    world.wait_settled("toy", 1)


def test_without_the_lease_nobody_leads(install: Install, world: World, start: Start, watcher: Proxy) -> None:
    installed = install()
    for rule in [rule for rule in installed.rules() if rule.role["metadata"]["name"].endswith("-elect")]:
        installed.without(rule)
    operator = start()
    world.start(elastic_job("toy", small=1, big=1))
    eventually("a refusal", lambda: any("leases" in told for told in refusals(watcher.log)))
    assert not operator.leads
    assert not world.pods("toy")
