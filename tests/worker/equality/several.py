"""Runs a script as groups of processes with torchrun's variables, all forked from one that has imported torch.

    several.py SCRIPT '[[WORLD, PORT, [ARGUMENT, ...]], ...]'

One group after the other; ends with 0 if all processes do. It is for runs of one size, of which there are many: torch's
import takes longest.
"""

import importlib
import json
import os
import runpy
import sys
import traceback

PRELOADED = (
    "torch",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.nn.parallel",
    "elastic_worker.library.job",
)


def main():
    script, groups = sys.argv[1], json.loads(sys.argv[2])
    for name in PRELOADED:
        importlib.import_module(name)
    failed = False
    for world, port, arguments in groups:
        pids = []
        for rank in range(world):
            pid = os.fork()
            if not pid:
                run(script, rank, world, port, arguments)
            pids.append(pid)
        codes = [os.waitpid(pid, 0)[1] for pid in pids]
        failed |= any(codes)
    sys.exit(failed)


def run(script, rank, world, port, arguments):
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({name: str(number) for name, number in numbers.items()}, MASTER_ADDR="127.0.0.1")
    sys.argv[:] = [script, *arguments]
    sys.path[0] = os.path.dirname(script)  # noqa: PTH120 (as python does)
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:  # noqa: BLE001 (of a process that must not go on as its parent)
        traceback.print_exc()
        os._exit(1)
    # Taking down an interpreter with all of torch takes longer than the training.
    os._exit(0)


if __name__ == "__main__":
    main()
