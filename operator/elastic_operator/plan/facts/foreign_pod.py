"""A pod of others that waits for GPUs, as the allocator sees it."""

from __future__ import annotations

from dataclasses import dataclass

from elastic_operator.plan.facts.demand import JobDemand


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A pending GPU pod that is not ours, for which kube-scheduler has found no room."""

    demand: JobDemand
    """The pod as a job of one pod, so that one set of rules serves jobs and foreign pods."""
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

    @property
    def uid(self) -> str:
        return self.demand.uid

    @property
    def promised_node(self) -> str:
        """The node that is reserved for the pod, by the operator's nomination or another one; "" for none."""
        return self.reserved or self.nominated
