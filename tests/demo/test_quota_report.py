from dataclasses import replace
from io import StringIO

from rich.console import Console

from demo.journal import Epoch
from demo.quota_report import Report
from demo.reclaims import Reclaim, TakenBack, all_of
from demo.stage import Done

RECLAIM = Reclaim("team-b/notebook-1", "n3", 1, ("team-a/toy-worker-1",), 1, 0.25, 2.5, 3.0, 3.5)
TAKEN_BACK = TakenBack((RECLAIM,), ("team-a/toy-worker-1", "team-a/toy-worker-2"), evicted_gpus=2, requested_gpus=1)


def report(*, told=(), sizes=(), done=()):
    """A report of a training with these world sizes, one epoch after the other."""
    return Report(TAKEN_BACK, told, [Epoch(float(i), i, size) for i, size in enumerate(sizes)], done)


def test_the_world_sizes_are_those_of_the_training_one_after_the_other():
    assert report(sizes=[2, 2, 4, 4, 4, 2, 4, 3]).as_json()["worldSizes"] == [2, 4, 2, 4, 3]


def test_the_table_has_a_row_for_each_reclaim_with_its_times_and_gpus():
    console = Console(file=StringIO(), width=140)
    report(told=["2 pods went to team-b"]).show(console)
    told = console.file.getvalue()
    assert "event: 2 pods went to team-b" in told
    (row,) = [line for line in told.splitlines() if "notebook-1" in line]
    cells = [cell.strip() for cell in row.strip(" │").split("│")]
    assert cells == ["team-b/notebook-1", "n3", "team-a/toy-worker-1", "0.25 s", "2.50 s", "3.00 s", "3.50 s", "1/1"]
    assert "evicted GPUs: 2, requested: 1, ratio 2.0; created to running: p50 3.50 s, p95 3.50 s" in told


def test_what_came_true_is_listed_with_how_long_it_took():
    told = report(done=[Done("a job to run", 1.23456)]).as_json()
    assert told["steps"] == [{"expected": "a job to run", "seconds": 1.235}]
    assert told["evictedPerRequestedGPU"] == 2.0
    assert (told["pendingToRunningP50Seconds"], told["pendingToRunningP95Seconds"]) == (3.5, 3.5)


def test_rounds_add_up_and_the_slow_pods_stand_in_p95():
    slow = TakenBack(tuple(replace(RECLAIM, running_after=after) for after in (4.0, 9.0, None)), ("team-a/x",), 1, 2)
    both = all_of([TAKEN_BACK, slow])
    assert (both.evicted_gpus, both.requested_gpus, both.ratio) == (3, 3, 1.0)
    assert both.evicted == ("team-a/toy-worker-1", "team-a/toy-worker-2", "team-a/x")
    assert (both.running_after(0.5), both.running_after(0.95)) == (4.0, 9.0)
