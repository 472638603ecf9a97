"""The state of one pass: its changes so far, and answers that hold within it."""

from __future__ import annotations

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.pass_memo import PassMemo, RoundMemory


class PassState:
    """Made when a pass begins.

    Its changes so far:
        changed       the entries that it has changed or tried to change
        preempted     the entries that have lost all their pods in it
        new_places    the number of pending pods that had no node and got a place by preemption
        serving       the gang that is being served; "" for none
        tried_gangs   the gangs served so far, with `tried_pods` pods in all

    Answers that hold within it:
        given         the GPUs that the jobs of a team give to one of its entries, for `preemption.candidates`
        requested_by  the GPUs for which jobs request new nodes, for `node_requests`
        no_growth     jobs that could not grow at others' cost, and their equivalents (180)
        round         the answers that hold within the present round
    """

    def __init__(self, journal: Journal) -> None:
        self.changed, self.preempted = set[Entry](), set[Entry]()
        self.new_places, self.serving = 0, ""
        self.tried_gangs, self.tried_pods = set[str](), 0
        self.given, self.requested_by = PassMemo[int](journal), PassMemo[int](journal)
        self.no_growth = PassMemo[bool](journal)
        self.round = RoundMemory(journal)
