"""The lines of several processes of one pod can be told apart."""

import asyncio
import os
import signal

import pytest

from elastic_worker.processes import leftover
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


async def test_the_only_process_of_a_pod_has_no_prefix_and_its_unfinished_line_is_seen(tmp_path, capfd):
    (tmp_path / "go").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "go")
    bar = f"import sys; print('10%', end='\\r', flush=True); open({str(tmp_path / 'go')!r}).read(); print('100%')"
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(bar, environ={**os.environ, "LOCAL_WORLD_SIZE": "1"})
        seen = ""
        async with asyncio.timeout(20):
            while "10%" not in seen:
                await asyncio.sleep(0.01)
                seen += capfd.readouterr().out
        assert seen == "10%\r"
        (tmp_path / "go").write_text("")
        assert await process.wait() == 0
        assert process.last_lines() == ("100%",)
    assert capfd.readouterr().out == "100%\n"


ENDS = [
    ("print('out of memory soon', flush=True); os.kill(os.getpid(), signal.SIGKILL)", -9, ("out of memory soon",)),
    ("print('bad flag'); sys.exit(3)", 3, ("bad flag",)),
    ("faulthandler.disable(); os.write(2, b'NCCL WARN no end of line'); os.abort()", -6, ("NCCL WARN no end of line",)),
    ("print('x', flush=True); os.write(2, b'\\xff C++\\n'); os._exit(4)", 4, ("x", "\N{REPLACEMENT CHARACTER} C++")),
]


@pytest.mark.parametrize("size", ["1", "2"])
@pytest.mark.parametrize(("script", "code", "last"), ENDS)
async def test_a_process_that_leaves_no_exception_leaves_its_last_lines(tmp_path, script, code, last, size):
    """Its own: another process prints beside it."""
    environ = {**os.environ, "LOCAL_WORLD_SIZE": size}
    (tmp_path / "noise.py").write_text("import time\nwhile True:\n    print('noise', flush=True); time.sleep(0.001)")
    noise = Program(SCRIPT, str(tmp_path / "noise.py"))
    async with a_lab(tmp_path) as lab:
        other = await lab.starter.start(noise, environ=environ, directory="/", local_rank=0)
        program = Program(SCRIPT, lab.script(f"import faulthandler, os, signal, sys\n{script}"))
        process = await lab.starter.start(program, environ=environ, directory="/", local_rank=1)
        assert await process.wait() == code
        assert sorted(process.last_lines()) == sorted(last)  # of two streams, in any order
        other.signal(signal.SIGKILL)
        await other.wait()


async def test_a_child_that_holds_the_output_does_not_hold_up_what_is_told(tmp_path):
    child = "if os.fork() == 0:\n    os.setsid(); time.sleep(1000)"
    script = f"import os, time\n{child}\nprint('parent', flush=True); os._exit(1)"
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(script, environ={**os.environ, "LOCAL_WORLD_SIZE": "1"})
        assert await process.wait() == 1
        assert process.last_lines() == ("parent",)
        await leftover.end([process.pid])
