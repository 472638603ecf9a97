"""Puts together the parts that turn the stores into facts for `plan`. They read memory only, and write nothing."""

from __future__ import annotations

from elastic_api.job import PLURAL
from elastic_operator.cluster.clock import ServerClock
from elastic_operator.cluster.pruned_fields import PrunedFields
from elastic_operator.cluster.stores import Stores
from elastic_operator.quarantine import Quarantine
from elastic_operator.read.external_changes import ExternalChanges
from elastic_operator.read.first_seen import FirstSeen
from elastic_operator.read.foreign.foreign_pods import ForeignPods
from elastic_operator.read.foreign.nomination_backoffs import NominationBackoffs
from elastic_operator.read.job_contexts import JobContexts
from elastic_operator.read.jobs import Jobs
from elastic_operator.read.ledger import Ledger
from elastic_operator.read.nodes import Nodes
from elastic_operator.read.policies import Policies
from elastic_operator.read.shapes import Shapes
from elastic_operator.read.specs import Specs
from elastic_operator.settings import Settings


class Reader:
    """The parts that read the stores."""

    def __init__(
        self,
        stores: Stores,
        ledger: Ledger,
        settings: Settings,
        *,
        clock: ServerClock,
        quarantine: Quarantine,
        pruned_fields: PrunedFields | None = None,
    ) -> None:
        self.nomination_backoffs = NominationBackoffs(clock.time)
        self.stores, self.ledger, self.settings, self.quarantine = stores, ledger, settings, quarantine
        self.first_seen, self.pruned_fields = FirstSeen(clock), pruned_fields or PrunedFields(PLURAL)
        self.specs = Specs(self.first_seen, settings.allocation.gpu_resources)
        self.shapes = Shapes(settings, claims=stores.claims, volumes=stores.volumes, classes=stores.priority_classes)
        self.policies = Policies(stores.policies, stores.namespaces, settings.allocation, quarantine)
        self.nodes = Nodes(stores.nodes, ledger, self.first_seen, quarantine, settings.allocation.gpu_resources)
        self.external_changes = ExternalChanges(stores.jobs, ledger)
        self.job_contexts = JobContexts(
            stores,
            settings,
            pruned_fields=self.pruned_fields,
            specs=self.specs,
            nodes=self.nodes,
            policies=self.policies,
            external_changes=self.external_changes,
            ledger=ledger,
            now=clock.time,
        )
        self.jobs = Jobs(ledger, settings, specs=self.specs, contexts=self.job_contexts, first_seen=self.first_seen)
        self.foreign_pods = ForeignPods(
            ledger,
            settings,
            nodes=stores.nodes,
            clock=clock,
            quarantine=quarantine,
            volumes=self.shapes.volumes,
            backoffs=self.nomination_backoffs,
        )
