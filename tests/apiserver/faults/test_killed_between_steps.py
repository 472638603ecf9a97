"""The operator dies between two writes of one decision, at every place there is; whoever comes next finishes it.

One thing is decided about each of these jobs. A calm run, with one operator that lives, says how that ends. Then the
same is done to an operator that is killed right after the API server carried out a write and before it heard so: what
its successor knows is in API objects alone. To die before the next write is the same: nothing else leaves the process.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from elastic_worker.contract import LABEL_INCARNATION
from tests.apiserver.faults.lab import World, elastic_job, job_of
from tests.apiserver.faults.proxy import CutOff, Proxy, Request
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import Operator, Operators, eventually

pytestmark = pytest.mark.apiserver

MOST_DEATHS = 200
SETTLE_SECONDS = 90
Cause = Callable[[World, str], object]
Start = Callable[[], Operator]

COUNTERS = ("replicas", "targetReplicas", "readyReplicas", "incarnation", "restarts", "resizes", "failures")


def edit(job: str, **spec: Any) -> Cause:
    """A user changes the spec."""
    return lambda world, prefix: accepted(world.jobs.patch(prefix + job, {"spec": spec}))


def lose(pod: str) -> Cause:
    """Somebody deletes a pod."""
    return lambda world, prefix: world.delete_pod(prefix + pod)


def end(exit_code: int, *pods: str) -> Cause:
    """Containers end, one pod after the other."""
    return lambda world, prefix: [world.end(prefix + pod, exit_code) for pod in pods]


def start(world: World, prefix: str) -> None:
    """A user creates a job."""
    world.start(elastic_job(f"{prefix}starts", small=2, big=3))


def changed_template() -> dict[str, Any]:
    """Another script."""
    template: dict[str, Any] = elastic_job()["spec"]["template"]
    template["spec"]["containers"][0]["args"] = ["other.py"]
    return template


@dataclass(frozen=True, slots=True)
class Case:
    """One decision: a job with `before` pods (and `spec`), what happens to it, and how many pods are to come of it."""

    before: int
    cause: Cause
    after: int
    spec: dict[str, Any] = field(default_factory=dict)


CASES = {
    "starts": Case(0, start, 3),
    "grows": Case(2, edit("grows", maxReplicas=4), 4),
    "shrinks": Case(4, edit("shrinks", maxReplicas=2), 2),
    "loses-worker": Case(3, lose("loses-worker-worker-0"), 3),
    "loses-master": Case(3, lose("loses-master-master-0"), 3),
    "suspends": Case(3, edit("suspends", suspend=True), 0),
    "resumes": Case(2, edit("resumes", suspend=False, template=changed_template()), 2, {"suspend": True}),
    "fails": Case(2, end(1, "fails-master-0"), 2),
    "fails-for-good": Case(
        2,
        end(1, "fails-for-good-master-0"),
        0,
        {"recovery": {"maxFailuresWithoutProgress": 1}, "cleanPodPolicy": "All"},
    ),
    "ends": Case(2, end(0, "ends-worker-0", "ends-master-0"), 0, {"cleanPodPolicy": "All"}),
}


@dataclass(frozen=True, slots=True)
class Script:
    """The jobs of all cases, under names with a prefix, and what is done to them."""

    world: World
    prefix: str = ""

    def prepare(self) -> None:
        """Until the jobs are as they are to be before."""
        cases = {self.prefix + name: case for name, case in CASES.items() if case.before}
        for name, case in cases.items():
            self.world.start(elastic_job(name, big=case.before, **case.spec))
        for name, case in cases.items():
            self.world.wait_settled(name, 0 if case.spec.get("suspend") else case.before, seconds=SETTLE_SECONDS)

    def play(self) -> None:
        """Do to each job what the operator has to decide about."""
        for case in CASES.values():
            case.cause(self.world, self.prefix)

    def clean(self) -> None:
        """Delete the jobs."""
        for name in CASES:
            self.world.delete_job(self.prefix + name)
        eventually("no pods", lambda: not self.world.pods(), seconds=SETTLE_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether each job has its pods and says so, and those that are to end or to start anew have done so."""
        status = {name: self.world.status(self.prefix + name) for name in CASES}
        ended = all("completionTime" in status[name] for name in ("ends", "fails-for-good"))
        replaced = all(status[name].get("incarnation") == 2 for name in ("fails", "loses-master"))
        refilled = status["loses-worker"].get("restarts") == 1
        sized = all(self.world.settled(self.prefix + name, case.after) for name, case in CASES.items())
        return ended and replaced and refilled and sized

    def outcome(self) -> dict[str, Any]:
        """What is there, without times, texts and identities."""
        return {name: self._outcome_of(self.prefix + name) for name in CASES}

    def _outcome_of(self, name: str) -> dict[str, Any]:
        status = self.world.status(name)
        return {
            "pods": sorted(self._seen(pod) for pod in self.world.pods(name)),
            "counters": {counter: status.get(counter) for counter in COUNTERS},
            "history": [(change["from"], change["to"], change["reason"]) for change in status["history"]],
            "conditions": sorted((c["type"], c["status"], c["reason"]) for c in status["conditions"]),
            "services": self._count(name, "/api/v1", "services"),
            "slices": self._count(name, "/apis/discovery.k8s.io/v1", "endpointslices"),
        }

    def _seen(self, pod: dict[str, Any]) -> tuple[str, str, bool]:
        """Without the index: a pod made while an older one is on its way out gets another than one made after."""
        is_new = "other.py" in json.dumps(pod["spec"]["containers"])
        return pod["metadata"]["name"].removeprefix(self.prefix).rsplit("-", 1)[0], incarnation_of(pod), is_new

    def _count(self, name: str, group: str, kind: str) -> int:
        items = self.world.api.get(f"{group}/namespaces/{self.world.jobs.namespace}/{kind}").json()["items"]
        return sum(job_of(item) == name for item in items)


def incarnation_of(pod: dict[str, Any]) -> str:
    """Which set of pods it belongs to."""
    incarnation: str = pod["metadata"]["labels"][LABEL_INCARNATION]
    return incarnation


def is_a_step(request: Request) -> bool:
    """A write that is part of a decision. Events are news, and may be lost."""
    return request.writes and not request.of_lease and not request.path.endswith("/events")


class Death:
    """Waits for the operator at its `writes`-th write: the API server carries it out, and nobody hears of it."""

    def __init__(self, proxy: Proxy) -> None:
        self.victim: Operator | None = None
        self.writes = 0
        self.came = threading.Event()
        proxy.one_write_at_a_time = True
        proxy.before, proxy.after = self.before, self.after

    def wait_for(self, victim: Operator, *, writes: int) -> None:
        """The next one to die, and when."""
        self.victim, self.writes = victim, writes
        self.came.clear()

    def rest(self) -> None:
        """Nobody dies any more."""
        self.victim = None
        self.came.clear()

    def before(self, request: Request) -> None:
        """The dead do not write, however near their request came."""
        if self.came.is_set() and is_a_step(request):
            raise CutOff

    def after(self, request: Request, status: int) -> None:
        """Count what was carried out."""
        if self.victim is None or not is_a_step(request) or status >= 300:
            return
        self.writes -= 1
        if self.writes == 0:
            self.victim.kill()
            self.came.set()
            raise CutOff


@pytest.fixture(scope="module")
def calm_outcome() -> dict[str, Any]:
    """Of the calm run, which the first test makes for all."""
    return {}


@pytest.fixture
def start_operator(operators: Operators, proxy: Proxy) -> Start:
    """As the container of one and the same pod: each goes on under the lease of the one before it."""
    return lambda: operators.start(server=proxy.url, environ={"POD_UID": "one-pod"})


@pytest.fixture
def calm(calm_outcome: dict[str, Any], world: World, start_operator: Start) -> dict[str, Any]:
    """The outcome where nobody dies. The operator is stopped afterwards."""
    if not calm_outcome:
        script = Script(world, prefix="calm-")
        operator = start_operator()
        script.prepare()
        script.play()
        eventually("the calm end", lambda: script.is_over, seconds=SETTLE_SECONDS, report=world.report)
        calm_outcome.update(script.outcome())
        script.clean()
        operator.stop()
    return calm_outcome


def disturbed(script: Script, start_operator: Start, proxy: Proxy, writes: Iterable[int]) -> None:
    """Play the script to its end, while one operator after the other dies at its so-many-th write."""
    operator = start_operator()
    script.prepare()
    operator.stop()
    proxy.log.clear()
    death = Death(proxy)
    script.play()
    for count in writes:
        operator = start_operator()
        death.wait_for(operator, writes=count)
        eventually("a death or the end", lambda: death.came.is_set() or script.is_over, seconds=SETTLE_SECONDS)
        if not death.came.is_set():
            break
    death.rest()
    if not operator.lives:
        start_operator()
    eventually("the end", lambda: script.is_over, seconds=SETTLE_SECONDS, report=script.world.report)


def created(proxy: Proxy) -> Counter[tuple[str, str]]:
    """How often the API server made each pod of each incarnation."""
    made = [e for e in proxy.log if e.request.method == "POST" and e.request.path.endswith("/pods") and e.status == 201]
    pods = [json.loads(entry.request.body) for entry in made]
    return Counter((pod["metadata"]["name"], incarnation_of(pod)) for pod in pods)


def check(script: Script, calm: dict[str, Any], proxy: Proxy) -> None:
    """The same as in the calm run, and no pod was made twice."""
    outcome = script.outcome()
    assert {name: outcome[name] for name in CASES} == calm
    assert max(created(proxy).values()) == 1


@pytest.mark.extended
@pytest.mark.lengthy
def test_operators_that_die_after_each_single_write_get_to_the_same_end(
    calm: dict[str, Any], world: World, start_operator: Start, proxy: Proxy
) -> None:
    script = Script(world)
    disturbed(script, start_operator, proxy, [1] * MOST_DEATHS)
    check(script, calm, proxy)


@pytest.mark.long
@pytest.mark.parametrize("writes", range(2, 32, 3))
def test_a_death_at_any_one_write_changes_nothing(
    calm: dict[str, Any], world: World, start_operator: Start, proxy: Proxy, writes: int
) -> None:
    script = Script(world)
    disturbed(script, start_operator, proxy, [writes])
    check(script, calm, proxy)
