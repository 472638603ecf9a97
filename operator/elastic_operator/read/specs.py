"""Parses the jobs' specs and statuses, each once: a spec for each generation, a status for each status text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from elastic_api.invalid import InvalidSpecError
from elastic_api.job import JobSpec
from elastic_api.parse import known_part, parse_spec, parse_status, unused_flags
from elastic_api.status import ConditionType, JobStatus
from elastic_api.template import fingerprint
from elastic_operator.cluster import objects
from elastic_operator.memory import KeyedCache
from elastic_operator.plan.facts.job import SET_BY_OPERATOR
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.facts.times import seconds, status_time
from elastic_operator.read.first_seen import FirstSeen
from elastic_operator.read.uncounted_devices import DeviceRequests, device_requests_of
from elastic_operator.read.written_times import not_ahead
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ParsedSpec:
    """A job's spec of one generation. If that one is unreadable, `spec` is the last readable one, and `invalid` says
    why (99).

    `warnings` are about fields and flags of torchrun that have no effect. Jobs with equal specs share one object (195).
    """

    generation: int
    spec: JobSpec | None
    invalid: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    device_requests: DeviceRequests = field(default_factory=DeviceRequests)
    warnings: Mapping[ConditionType, Reason] = field(default_factory=dict)

    @property
    def reports_failures(self) -> bool:
        """Whether the job's pods write the reason of a failure into their termination message, so that no log need be
        read (14).
        """
        return self.spec is not None and self.spec.is_elastic

    def with_grace_up_to(self, seconds: int | None) -> JobSpec | None:
        """The spec, with the grace of its pods cut to that many seconds; None: with the grace unchanged."""
        spec = self.spec
        if spec is None or seconds is None or spec.elasticity.grace_period_seconds <= seconds:
            return spec
        elasticity = spec.elasticity.model_copy(update={"grace_period_seconds": seconds})
        return spec.model_copy(update={"elasticity": elasticity})


class Specs:
    """The specs and statuses of all jobs that were asked for."""

    def __init__(self, first_seen: FirstSeen, gpu_resources: Sequence[str]) -> None:
        self._first_seen, self._clock, self._gpu_resources = first_seen, first_seen.clock, gpu_resources
        self._parsed: KeyedCache[int, ParsedSpec] = KeyedCache()
        self._equal: WeakValueDictionary[tuple[int, bool, bytes], ParsedSpec] = WeakValueDictionary()
        """The readable specs in use, by generation, whether the job has run, and compressed text (195)."""
        self._statuses: KeyedCache[tuple[bytes, int], JobStatus] = KeyedCache()
        self.on_hold: set[str] = set()
        """The jobs (uids) whose size is held, by the last status that was read (143)."""

    def forget_deleted(self, present: Set[str]) -> None:
        self._parsed.drop_absent(present)
        self._statuses.drop_absent(present)
        self.on_hold &= present

    def parse(self, body: objects.CustomObject) -> ParsedSpec:
        """The job's spec; the same object while its generation does not change."""
        meta = body.metadata
        return self._parsed.get(meta.uid, meta.generation, self._parse, body)

    def _parse(self, body: objects.CustomObject) -> ParsedSpec:
        generation, has_run = body.metadata.generation, self.status(body).start_time is not None
        key = generation, has_run, body.spec.packed
        known = self._equal.get(key)
        if known is not None:
            return known
        try:
            spec, unknown = self._read(body.spec.unpack(), has_run=has_run)
            prints = {role: fingerprint(spec, role) for role in (ROLE_MASTER, ROLE_WORKER)}
            parsed = ParsedSpec(generation, spec, "", prints, device_requests_of(spec), _warnings(spec, unknown))
        except InvalidSpecError as error:
            _, last = self._parsed.peek(body.metadata.uid) or (None, ParsedSpec(generation, None, ""))
            return replace(last, generation=generation, invalid=str(error))
        self._equal[key] = parsed
        return parsed

    def _read(self, raw: dict[str, Any], *, has_run: bool) -> tuple[JobSpec, str]:
        """The spec; and a warning if a job that has run has fields which this release does not know (99).

        Such a job ran with these fields under a later release of the operator. A job that has not run must be edited
        instead. Raises InvalidSpecError.
        """
        read = partial(parse_spec, gpu_resources=self._gpu_resources, has_run=has_run)
        try:
            return read({"spec": raw}), ""
        except InvalidSpecError:
            spec, unknown = known_part(raw) if has_run else (raw, "")
            if not unknown:
                raise
            return read({"spec": spec}), unknown

    def status(self, body: objects.CustomObject) -> JobStatus:
        """The job's status, without times that lie too far ahead (29); the same object while it does not change."""
        key = body.status.packed, self._clock.stepped
        return self._statuses.get(body.metadata.uid, key, self._parse_status, body)

    def has_read(self, body: objects.CustomObject) -> bool:
        """Whether the job's present status was read, and its spec, unless the job is being deleted."""
        meta = body.metadata
        generation, _ = self._parsed.peek(meta.uid) or (None, None)
        key, _ = self._statuses.peek(meta.uid) or (None, None)
        knows_spec = generation == meta.generation or meta.deletion_timestamp is not None
        return knows_spec and key is not None and key[0] == body.status.packed

    def _parse_status(self, body: objects.CustomObject) -> JobStatus:
        status, uid = parse_status({"status": body.status.unpack()}), body.metadata.uid
        (self.on_hold.discard if status.held_until is None else self.on_hold.add)(uid)
        if status.master_lost_time is not None:
            since = self._first_seen.since(uid, seconds(status.master_lost_time))
            status = status.model_copy(update={"master_lost_time": status_time(since)})
        return not_ahead(status, self._clock.time())


def _warnings(spec: JobSpec, unknown: str) -> Mapping[ConditionType, Reason]:
    """The warnings about the spec itself; `unknown` is the warning about its unknown fields."""
    found = {
        ConditionType.FIELDS_IGNORED: Reason("NoSuchField", unknown),
        ConditionType.FLAGS_NOT_USED: Reason(SET_BY_OPERATOR, unused_flags(spec)),
    }
    return {kind: reason for kind, reason in found.items() if reason.message}


def class_named_by(body: objects.CustomObject) -> str | None:
    """The PriorityClass of a job with an unreadable spec."""
    name = body.spec.unpack().get("priorityClassName")
    return name if isinstance(name, str) else None
