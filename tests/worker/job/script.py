"""The common part of the tests' training scripts: their ends, failures and records.

Each process appends a line of JSON per step to FOLDER/steps-POD-LOCAL_RANK.jsonl: time (monotonic), master, generation,
pid, pod, and what the script adds.
"""

import json
import os
import signal
import time


def add_failures(parser):
    """Options for `fail_if_asked`."""
    parser.add_argument("--fail-at", type=int, default=-1)
    parser.add_argument("--fail-rank", type=int, default=0)
    parser.add_argument("--fail-how", default="raise", choices=["raise", "hang", "spin", "kill"])
    parser.add_argument("--fail-once", action="store_true")


def fail_if_asked(options, rank, step):
    """Fail as the test requires, at its step and on its rank."""
    marker = options.folder / "failed"
    if step != options.fail_at or rank != options.fail_rank or (options.fail_once and marker.exists()):
        return
    marker.touch()
    if options.fail_how == "raise":
        raise ValueError(f"the loss is NaN in step {step}")
    if options.fail_how == "hang":
        print("it hangs now", flush=True)
        time.sleep(10_000)
    if options.fail_how == "spin":
        print("it spins now", flush=True)
        while True:
            pass
    print(f"it is killed in step {step}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def is_over(folder, epoch):
    """Whether the test has ended the training before this epoch."""
    path = folder / "epochs"
    return path.exists() and epoch >= int(path.read_text())


def account(folder):
    """The file for `write`."""
    name = f"steps-{os.environ.get('ELASTIC_POD_NAME', 'alone')}-{os.environ.get('LOCAL_RANK', '0')}.jsonl"
    return (folder / name).open("a", buffering=1)


def write(log, **what):
    """One step."""
    where = {
        "time": time.monotonic(),
        "master": int(os.environ.get("ELASTIC_MASTER_EPOCH", "0")),
        "generation": int(os.environ.get("ELASTIC_GENERATION", "0")),
        "pid": os.getpid(),
        "pod": os.environ.get("ELASTIC_POD_UID", ""),
    }
    log.write(json.dumps({**where, **what}) + "\n")
