"""Scripts that save in five ways are stopped at random moments: no torn checkpoint is taken for a complete one."""

import asyncio
import random

import pytest

from elastic_worker.checkpoint.freeze import stop_at_checkpoint
from tests.worker.checkpoint.five_ways import WAYS
from tests.worker.checkpoint.writing import running, settled, watching

KILLS = 0.2
"""Of the stops; the others are planned changes."""


@pytest.mark.parametrize("stops", [10, pytest.param(200, marks=pytest.mark.extended)])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.timeout(900)
async def test_checkpoint_marked_complete_is_whole_at_any_stop(tmp_path, way, stops):
    chance = random.Random(seed := random.randrange(1 << 32))
    print(f"seed {seed}")
    (tmp_path / "out").mkdir()
    while stops:
        planned = min(stops - 1, int(chance.expovariate(KILLS)))
        await live(tmp_path, way, chance, planned)
        stops -= planned + 1


async def live(root, way, chance, planned):
    """One process: stopped so many times for a planned change, and killed in the end."""
    code = "from tests.worker.checkpoint.five_ways import save_forever\n"
    code += f"save_forever({way!r}, {str(root)!r}, {chance.random()})"
    with running(code) as script:
        async with watching(root / WAYS[way].path, script) as watch:
            for _ in range(planned):
                await asyncio.sleep(chance.uniform(0, 0.05))
                assert await stop_at_checkpoint(watch, [script], seconds=60)
                WAYS[way].read(root)
                script.thaw()
            await asyncio.sleep(chance.uniform(0, 0.5))
            script.kill_now()
            await settled(watch, seconds=0.1)
            if watch.verify():
                WAYS[way].read(root)
