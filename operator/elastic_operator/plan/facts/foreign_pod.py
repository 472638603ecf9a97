"""A pod of others that waits for GPUs, as the allocator sees it."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_operator.plan.facts.demand import JobDemand, PreemptionBar
from elastic_operator.plan.facts.requirements import JobShape, PodShape
from elastic_operator.plan.facts.team import DEFAULT_FLAVOR


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A pending GPU pod that is not ours, for which kube-scheduler has found no room."""

    uid: str
    namespace: str
    name: str
    created: float
    shape: PodShape
    flavor: str = DEFAULT_FLAVOR
    priority: int = 0
    nominated: str = ""
    """The node that kube-scheduler, or another program than this operator, has nominated the pod for."""
    reserved: str = ""
    """The node that the operator has nominated the pod for: room that is or becomes free there is for the pod (45)."""
    preempts: bool = True
    """Whether kube-scheduler itself evicts pods of lower priority for this pod: the operator deletes none of these."""
    unplannable: str = ""
    """Why no place can be planned for the pod, in words (inter-pod rules, unbound volumes, claims); "" if it can be."""
    gang: str = ""
    """The pods of one gang get all their places in one pass, or none (144); "": no gang."""
    may_be_split: bool = False
    """Whether the gang is served pod by pod if the team has no guarantee for all of it."""
    may_preempt: bool = True
    """Whether pods of others may be preempted for the pod. If not, the pod gets free room only."""

    @property
    def promised_node(self) -> str:
        """The node that is reserved for the pod, by the operator's nomination or another one; "" for none."""
        return self.reserved or self.nominated

    @property
    def demand(self) -> JobDemand:
        """The pod as a job of one pod; a new object."""
        return JobDemand(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            priority=self.priority,
            created=self.created,
            sizes=(1,),
            shape=JobShape(self.shape, self.shape, self.flavor),
            undelayed_size=1,
            preemption_bar=None if self.may_preempt else PreemptionBar.GANG_INCOMPLETE,
        )
