"""Checks a library job under faults: each sample of an epoch is in one step that counted, and a checkpoint is read only
after the loss of all processes."""

import itertools
import re
import time
from collections import Counter, defaultdict
from datetime import datetime

from tests.worker.job.exactly_once import BATCH, LENGTH, group_of
from tests.worker.torchpath import give_torch

MICRO = 4
DAY_SECONDS = 86_400
NO_FAULT = "no fault"
RESTORED = re.compile(r"^(\d\d:\d\d:\d\d\.\d+) .*step (\d+) is restored from", re.MULTILINE)


def count_samples(lineage):
    """The number of samples that the steps of `lineage` (LibraryJob's) have applied.

    Raises AssertionError if one was left out or applied twice, by the library's order of the data.
    """
    give_torch()
    # This imports torch, for which plain scripts under faults need not wait.
    from tests.worker.equality.counting import assert_exactly_once

    steps, lacking = max(lineage), _killed_in(lineage)
    shape = {"length": LENGTH, "batch": BATCH, "micro": MICRO}
    assert_exactly_once(dict(sorted(lineage.items())), **shape, steps=steps, may_lack=lacking)
    return steps * BATCH


def _killed_in(lineage):
    """Of how many ranks each step may lack the line: of those that wrote nothing later in that group."""
    last = defaultdict(int)
    for step, lines in lineage.items():
        for line in lines:
            key = group_of(line), line["rank"]
            last[key] = max(last[key], step)
    killed = Counter()
    for step, lines in lineage.items():
        there = {line["rank"] for line in lines}
        missing = set(range(lines[0]["world"])) - there
        killed[step] = sum(last[group_of(lines[0]), rank] < step for rank in missing)
    return killed


def restores(pods):
    """The times at which a checkpoint was read (monotonic seconds), from the logs of `pods`; those of the last day."""
    now, clock = time.monotonic(), datetime.now().astimezone()
    midnight = clock.replace(hour=0, minute=0, second=0, microsecond=0)
    found = []
    for pod in pods:
        for at, step in RESTORED.findall(pod.said()):
            told = datetime.strptime(at, "%H:%M:%S.%f").replace(tzinfo=clock.tzinfo)
            of_day = (told - told.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()
            ago = ((clock - midnight).total_seconds() - of_day) % DAY_SECONDS
            found.append((now - ago, int(step)))
    return sorted(found)


def assert_read_after_the_loss_of_all(read, steps, harmed):
    """`read` is the result of `restores`, `steps` are the recorded ones, `harmed` those of Faults.

    Raises AssertionError if a process had the state, and could hand it over, when a checkpoint was read.
    """
    by_process = defaultdict(list)
    for line in steps:
        by_process[line["pod"], line["pid"]].append(line["time"])
    for at, step in read:
        for (pod, pid), times in by_process.items():
            before, after = [t for t in times if t < at], [t for t in times if t >= at]
            if not before or not after:
                continue
            away = any(uid == pod and begun <= at and before[-1] <= ended for uid, begun, ended in harmed)
            assert away, f"step {step} was read from a checkpoint while process {pid} of {pod} had the state"


def losses(steps, *, began, ended):
    """Of the time between two moments, what did not go into steps that counted: gaps as (from, to, seconds lost).

    Which step counted: the last one of its number, but for what a process writes of a group that has a successor by
    then. A gap between two of them of more than twice the usual (median) is lost, but for what a step usually takes: in
    it somebody was waited for, or there were steps that are done again.
    """
    counted, lowest = [], None
    for line in reversed(_in_their_group(steps)):
        if lowest is None or line["step"] < lowest:
            lowest = line["step"]
            counted.append(line["time"])
    marks = [began, *(at for at in reversed(counted) if began <= at < ended), ended]
    gaps = list(itertools.pairwise(marks))
    if len(gaps) < 2:
        return [(began, ended, ended - began)]
    usual = sorted(after - before for before, after in gaps)[len(gaps) // 2]
    return [(before, after, after - before - usual) for before, after in gaps if after - before > 2 * usual]


def _in_their_group(steps):
    """Those by time, without what was written when a later group had done a step already."""
    found, latest = [], (0, 0)
    for line in sorted(steps, key=lambda line: line["time"]):
        latest = max(latest, group_of(line))
        if group_of(line) == latest:
            found.append(line)
    return found


def lost_by_kind(found, moments):
    """What each kind of fault cost: {kind: (how many, seconds lost)}.

    `found` as from `losses`, `moments` pairs of (when, kind) in their order. A gap is of the first fault that came
    during it, or else of the latest before it; NO_FAULT's where there is neither.
    """
    counts, lost = Counter(kind for _, kind in moments), Counter()
    for began, ended, seconds in found:
        during = [kind for at, kind in moments if began <= at < ended]
        before = [kind for at, kind in moments if at < began]
        lost[(during or before[-1:] or [NO_FAULT])[0]] += seconds
    return {kind: (counts[kind], lost[kind]) for kind in counts | lost}
