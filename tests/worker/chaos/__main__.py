"""`python -m tests.worker.chaos --minutes 5 [--seed 7]`: prints each fault; ends with 1 if something does not hold."""

import argparse
import random
import signal
import sys
import tempfile
from pathlib import Path

from tests.worker.chaos.operator import FailedError
from tests.worker.chaos.run import run


def main():
    parser = argparse.ArgumentParser(prog="chaos", description="Random faults against a training job.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--library", action="store_true", help="a script that uses the library")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        try:
            run(
                Path(folder),
                seed=options.seed,
                seconds=60 * options.minutes,
                say=lambda told: print(told, flush=True),
                library=options.library,
            )
        except (AssertionError, FailedError) as error:
            print(error, file=sys.stderr)
            return f"chaos: seed {options.seed} went wrong"
    return 0


if __name__ == "__main__":
    sys.exit(main())
