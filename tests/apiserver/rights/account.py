"""What the chart gives the operator's service account, on a control plane of its own, and what the account may do."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from devcluster.cluster import Cluster
from tests.api.jobs import make_job, make_template
from tests.apiserver.operators import eventually, kubeconfig_of
from tests.apiserver.rights.requests import Right
from tests.chart.rendering import render
from tests.devcluster.pods import kubectl

NAMESPACE = "elastic-system"
NAME = "elastic-pytorch-operator"
READER = "elastic-pytorch-metrics-reader"
"""Account, role and binding of whoever scrapes, where metrics are not for everybody."""
USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"
GROUPS = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
RULES = (
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
PARTS = (*RULES, "CustomResourceDefinition", "ServiceAccount", "PriorityClass", "FlowSchema")
"""Of the chart; what runs in pods is left out, the tests start the operator themselves."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TOKEN_SECONDS = 3600
JOBS = "/apis/elastic-pytorch.dev/v1beta1/namespaces/default/elasticpytorchjobs"
DRY_RUN = {"dryRun": "All"}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a role; `place` is where the role is bound, "" in the whole cluster."""

    role: Object = field(repr=False)
    index: int
    place: str

    def __str__(self) -> str:
        rule = self.role["rules"][self.index]
        return f"{self.role['metadata']['name']}: {','.join(rule['resources'])}"

    @property
    def path(self) -> str:
        """Of the role."""
        meta = self.role["metadata"]
        scope = f"/namespaces/{meta['namespace']}/roles" if self.role["kind"] == "Role" else "/clusterroles"
        return f"{RBAC}{scope}/{meta['name']}"

    @property
    def name(self) -> str:
        """Of an object that it speaks of; "" if of all."""
        names: list[str] = self.role["rules"][self.index].get("resourceNames") or [""]
        return names[0]

    def rights(self) -> set[Right]:
        """Each verb on each resource."""
        rule = self.role["rules"][self.index]
        return {
            Right(verb, group, resource)
            for verb in rule["verbs"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }


def rendered(*flags: str) -> list[Object]:
    """The chart's objects of these kinds, with these flags for helm."""
    found = (one for one in yaml.safe_load_all(render(*flags)) if one)
    return [one for one in found if one["kind"] in PARTS and "helm.sh/hook" not in str(one["metadata"])]


def rules(objects: list[Object]) -> Iterator[Rule]:
    """The rules that are bound to the operator's account."""
    roles = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in objects
        if one["kind"] in ("ClusterRole", "Role")
    }
    for binding in objects:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding") or binding["metadata"]["name"] == READER:
            continue
        assert [subject["name"] for subject in binding["subjects"]] == [NAME]
        place, ref = binding["metadata"].get("namespace", ""), binding["roleRef"]
        role = roles[ref["kind"], place if ref["kind"] == "Role" else "", ref["name"]]
        for index in range(len(role["rules"])):
            yield Rule(role, index, place)


@dataclass(frozen=True, slots=True)
class Installed:
    """The chart's rights on a cluster, with an administrator's client."""

    cluster: Cluster
    api: httpx.Client
    objects: list[Object]
    taken: list[Rule] = field(default_factory=list)
    """Rules that roles lack for the time being."""

    def rules(self) -> list[Rule]:
        """What the account is granted."""
        return list(rules(self.objects))

    def granted(self) -> set[Right]:
        """All of its rights, wherever it has them."""
        return {right for rule in self.rules() for right in rule.rights()}

    def may(self, right: Right, namespace: str, *, name: str = "", user: str = USER) -> bool:
        """Whether the API server would let the user do that; `namespace` is "" for all of them."""
        what = {"verb": right.verb, "group": right.group, "resource": right.plural, "subresource": right.subresource}
        attributes = {**what, "namespace": namespace, "name": name}
        groups = GROUPS if user == USER else ["system:authenticated"]
        review = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
        answer = self.api.post(REVIEWS, json=review).raise_for_status().json()
        return bool(answer["status"]["allowed"])

    def without(self, rule: Rule) -> None:
        """The role lacks that rule from now on."""
        self.taken.append(rule)
        others = [one for index, one in enumerate(rule.role["rules"]) if index != rule.index]
        self._put(rule, others)

    def restore(self, rule: Rule) -> None:
        """The role is as the chart has it."""
        self._put(rule, rule.role["rules"])

    def restore_all(self) -> None:
        """Every role is as the chart has it, and the API server knows."""
        while self.taken:
            self.restore(self.taken.pop())
        for rule in self.rules():
            right = min(rule.rights())
            eventually(str(right), lambda right=right, rule=rule: self.may(right, rule.place, name=rule.name))

    def _put(self, rule: Rule, rules: list[Object]) -> None:
        role = {key: rule.role[key] for key in ("apiVersion", "kind", "metadata")}
        self.api.put(rule.path, json={**role, "rules": rules}).raise_for_status()


def apply(cluster: Cluster, objects: list[Object]) -> None:
    """Server-side apply, as an installation by kubectl does."""
    kubectl(
        cluster, "apply", "--server-side", "--force-conflicts", "--filename", "-", stdin=yaml.safe_dump_all(objects)
    )


def install(cluster: Cluster, api: httpx.Client, *flags: str) -> Installed:
    """The chart's parts; returns when the definitions are served."""
    objects = rendered(*flags)
    apply(cluster, objects)
    eventually("jobs", lambda: api.get("/apis/elastic-pytorch.dev/v1beta1/elasticpytorchjobs").is_success)
    eventually("policies", lambda: api.get("/apis/elastic-pytorch.dev/v1beta1/gpuquotapolicies").is_success)
    installed = Installed(cluster, api, objects)
    installed.restore_all()
    return installed


def uninstall(installed: Installed) -> None:
    """Nobody may do anything by the chart any more, and it refuses nothing; definitions and the account stay."""
    rules = [one for one in installed.objects if one["kind"] in RULES]
    kubectl(installed.cluster, "delete", "--ignore-not-found", "--filename", "-", stdin=yaml.safe_dump_all(rules))
    wrong = make_job(template=make_template(restartPolicy="Always"))
    eventually("an end of the rules", lambda: installed.api.post(JOBS, params=DRY_RUN, json=wrong).is_success)


def token_of(api: httpx.Client, name: str = NAME, namespace: str = NAMESPACE) -> str:
    """A token of a service account, by default the operator's, as the kubelet would mount it."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    answer = api.post(path, json={"spec": {"expirationSeconds": TOKEN_SECONDS}})
    token: str = answer.raise_for_status().json()["status"]["token"]
    return token


def write_kubeconfig(path: Path, *, server: str, token: str) -> Path:
    """A kubeconfig for whoever has that token, to a server that talks plain http."""
    path.write_text(kubeconfig_of(server, token=token))
    return path


def client_with(cluster: Cluster, token: str) -> httpx.Client:
    """An HTTP client with the rights of that token; it is to be closed."""
    trusted = ssl.create_default_context(cafile=str(cluster.layout.pki / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=client_server(cluster), verify=trusted, headers=headers, timeout=30, trust_env=False)


def client_server(cluster: Cluster) -> str:
    """The address of the cluster's API server."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    server: str = config["clusters"][0]["cluster"]["server"]
    return server
