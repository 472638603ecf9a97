"""What lives for one pass only: what the pass has done so far, and what it remembers."""

from __future__ import annotations

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.pass_memo import PassMemo, RoundMemory


class PassState:
    """Made when a pass begins.

    What the pass has done so far:
        changed       the entries that it has changed or tried to change
        preempted     the entries that lost all pods meanwhile
        new_places    the number of pending pods without a node so far that got a place at others' cost
        serving       the gang that is being served; "" for none
        tried_gangs   the gangs served so far, with `tried_pods` pods in all

    What it remembers:
        given         the GPUs that the jobs of a team give to one of its entries, for `preemption.candidates`
        requested_by  the GPUs for which jobs request new nodes, for `node_requests`
        round         what the present round remembers
    """

    def __init__(self, journal: Journal) -> None:
        self.changed, self.preempted = set[Entry](), set[Entry]()
        self.new_places, self.serving = 0, ""
        self.tried_gangs, self.tried_pods = set[str](), 0
        self.given, self.requested_by = PassMemo[int](journal), PassMemo[int](journal)
        self.round = RoundMemory(journal)
