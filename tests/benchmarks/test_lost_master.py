"""A master is killed on a real cluster: each of its parts is seen, and the job trains again."""

from __future__ import annotations

import pytest

from benchmarks.rescale import lost_master
from benchmarks.rescale.loads import Load
from benchmarks.rescale.systems import SYSTEMS
from devcluster.progress import Progress

pytestmark = [pytest.mark.cluster, pytest.mark.extended, pytest.mark.timeout(600)]


def test_the_parts_of_a_lost_master_make_up_all_of_the_time_with_torchrun_and_with_the_library():
    with lost_master.standing("benchlost", Progress(quiet=True)) as place:
        for number, name in enumerate(("tuned", "library")):
            cost = lost_master.measure(place, SYSTEMS[name], Load("rare", save_minutes=2), number=number)
            assert list(cost.parts) == ["made", "bound", "begun", "stepped"]
            assert all(seconds > 0 for seconds in cost.parts.values()), cost.parts
            assert sum(cost.parts.values()) == pytest.approx(cost.pause, abs=0.01)
