"""`python -m tests.worker.chaos --minutes 5 [--seed 7]`: prints each fault; exits with 1 after a violation.

With `--library --faults 2000` it ends after that many faults, and compares with torchrun.
"""

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.worker.chaos.compare import compare
from tests.worker.chaos.operator import FailedError
from tests.worker.chaos.run import Plan, run

FAULTS_HELP = """with --library, instead of minutes: end after so many. Five of each 200 moments are 20 s apart, and
come to torchrun as well, which restarts from its last checkpoint; the others are 1 s apart. The last line is JSON:
goodput of both, and what was lost. On 2 quiet cores 2000 take 80 minutes. A sample that was left out or came twice
makes it fail, and a checkpoint that was read needlessly; times never do"""


def main():
    parser = argparse.ArgumentParser(prog="chaos", description="Random faults against a training job.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--library", action="store_true", help="a script that uses the library")
    parser.add_argument("--faults", type=int, help=FAULTS_HELP)
    options = parser.parse_args()
    if options.faults is not None and (not options.library or options.faults < 1):
        parser.error(
            f"--faults {options.faults}: give 1 or more, with --library: a plain script has no account of samples"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    length = f"{options.faults} faults" if options.faults else f"{options.minutes:g} minutes"
    print(f"seed {options.seed}, {length}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        try:
            if options.faults:
                compare(Path(folder), faults=options.faults, seed=options.seed, say=say)
            else:
                run(Path(folder), Plan(options.seed, seconds=60 * options.minutes), say=say, library=options.library)
        except (AssertionError, FailedError) as error:
            print(error, file=sys.stderr)
            return f"chaos: seed {options.seed} went wrong"
    return 0


def say(told):
    """Print a line at once, since the run takes long."""
    print(told, flush=True)


if __name__ == "__main__":
    sys.exit(main())
