"""All that an allocation notes within one pass: its changes so far, and findings that hold within it. Each pass begins
with a new `PassState`, so nothing in it can be stale.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappush
from typing import TYPE_CHECKING

from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.journal import Journal
from elastic_operator.plan.allocation.pass_memo import KnownInfeasible, PassMemo
from elastic_operator.plan.allocation.victims import Victims
from elastic_operator.plan.facts.eviction_limits import EvictionLimits

if TYPE_CHECKING:
    from elastic_operator.plan.allocation.preemption.options import Option


UNKNOWN_PRICE: tuple[float, ...] = ()
"""The price of an option that may be cheaper than before. No other price is lower, so the option is examined next."""


@dataclass(slots=True)
class OptionHeap:
    """The options of one search.

    `heap` has a price and a node for each option. `by_node` has the options as they were last found. `use_after` is the
    preemptor's use if it gets all that it wants, at each level of the tree the highest since the search: options that
    such a use forbids are not in the heap (189).
    """

    heap: list[tuple[tuple[float, ...], int]] = field(default_factory=list)
    by_node: dict[int, Option] = field(default_factory=dict)
    use_after: tuple[int, ...] = ()

    def begin(self, by_node: dict[int, Option], use_after: tuple[int, ...]) -> None:
        """Begin with the result of a new search."""
        self.by_node, self.use_after = by_node, use_after
        self.heap = [(option.price, node) for node, option in by_node.items()]
        heapify(self.heap)


class PassState:
    """Made when a pass begins.

    Its changes so far:
        changed       the entries that it has changed or tried to change
        victims       the pods that it has preempted, and the limits on evictions
        preempted     the entries that have lost all their pods in it
        pods_placed   the number of foreign pods that had no node and got a place by preemption
        current_gang  the gang that is being served; "" for none
        tried_gangs   the gangs served so far, with `tried_pods` pods in all
        flavors_of_large_gangs  the flavors of the large gangs whose nodes are being cleared (217)

    Findings that hold within it, for entries that are equivalent:
        answers       to each `Question` about the present state
        infeasible    the numbers of workers that could not be placed, even by preemption; of the present round
        options       by preemptor, its options; of the present round, or until a preemption is undone
                      (`preemption.options` says when they are examined again)
    """

    def __init__(self, journal: Journal, limits: EvictionLimits, residents: Sequence[Container[str]]) -> None:
        self.changed, self.preempted = set[Entry](), set[Entry]()
        self.victims = Victims(journal, limits, residents)
        self.pods_placed, self.current_gang = 0, ""
        self.tried_gangs, self.tried_pods = set[str](), 0
        self.flavors_of_large_gangs = set[str]()
        self.answers = PassMemo(journal)
        self.begin_round()

    def begin_round(self) -> None:
        """Begin a round of minima and of the growth after it."""
        self.infeasible = KnownInfeasible()
        self.options: dict[Hashable, OptionHeap] = {}

    def node_got_room(self, node: int) -> None:
        """Options on that node may be cheaper now, so they are examined next."""
        for found in self.options.values():
            heappush(found.heap, (UNKNOWN_PRICE, node))
