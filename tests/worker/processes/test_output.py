"""The lines of several processes of one pod can be told apart."""

import os

import pytest

from elastic_worker.processes.program import SCRIPT, Program
from tests.worker.processes.lab import a_lab

TALK = (
    "import sys\nfor n in range(500):\n    print(n, 'x' * 200)\n    print('e', n, file=sys.stderr)\n"
    "sys.stdout.write('unended')\n"
)


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
async def test_each_line_carries_the_local_rank_and_none_is_lost_or_torn(tmp_path, capfd, warm):
    environ = {**os.environ, "LOCAL_WORLD_SIZE": "2"}
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        program = Program(SCRIPT, lab.script(TALK))
        ranks = [await lab.starter.start(program, environ=environ, directory="/", local_rank=rank) for rank in range(2)]
        assert [await process.wait() for process in ranks] == [0, 0]
    out, err = capfd.readouterr()
    for rank in range(2):
        mine = [line for line in out.splitlines() if line.startswith(f"[default{rank}]:")]
        assert mine == [f"[default{rank}]:{n} {'x' * 200}" for n in range(500)] + [f"[default{rank}]:unended"]
        assert [f"[default{rank}]:e {n}" for n in range(500)] == [
            line for line in err.splitlines() if line.startswith(f"[default{rank}]:e ")
        ]
    assert len(out.splitlines()) == 1002


async def test_the_only_process_of_a_pod_writes_without_a_detour(tmp_path, capfd):
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script("print('hello')", environ={**os.environ, "LOCAL_WORLD_SIZE": "1"})
        assert await process.wait() == 0
    assert capfd.readouterr().out == "hello\n"
