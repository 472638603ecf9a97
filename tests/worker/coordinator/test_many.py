"""A coordinator with a thousand members: what it costs is counted, and who is silent for how long."""

import asyncio

import pytest

from elastic_worker import wire
from elastic_worker.coordinator.state import Phase
from tests.worker.coordinator.many import calls_counted, playing

MOST = 2.2
"""Twice the members may cost so many times as much."""


async def form(folder, size, *, in_place=False):
    """What it costs to form a group of so many, and in place one of one more."""
    async with playing(folder, in_place=in_place) as job:
        with calls_counted(job.counted):
            job.dial(*range(size))
            job.write_membership(*range(size))
            await job.until(lambda state: len(trained(state, 1)) == size)
            if in_place:
                job.dial(size)
                job.write_membership(*range(size + 1))
                await job.until(lambda state: len(trained(state, 2)) == size + 1)
        assert job.state.phase == Phase.RUNNING
    return job.counted


def trained(state, number):
    """Who says that its processes are in that generation."""
    return [member for member in state.members.values() if member.reports_steps_of(number)]


@pytest.mark.parametrize("in_place", [False, True])
async def test_a_group_of_twice_the_size_costs_twice_as_much(tmp_path, in_place):
    half, whole = [await form(tmp_path, size, in_place=in_place) for size in (500, 1000)]
    more = {what: whole[what] / half[what] for what in whole}
    assert max(more.values()) <= MOST, more


async def test_nobody_hears_nothing_for_longer_than_a_second_while_a_thousand_members_are_told(tmp_path):
    """Of an earlier release: each is told the whole group, 106 kB, which takes 4 s in all."""
    async with playing(tmp_path, older=True, seconds_a_byte=4e-8) as job:
        job.dial(*range(1000))
        job.write_membership(*range(1000))
        await job.until(lambda state: len(trained(state, 1)) == 1000)
        await asyncio.sleep(3.0)
        assert job.counted["bytes told"] * job.seconds_a_byte > 3.0
        assert max(member.longest_silence for member in job.members.values()) < wire.BEAT_SECONDS + 0.05
