"""`python -m tests.soak --minutes 30 --seed 1 --seed 2 --report`: soaks, one after the other; ends with 1 if one broke.

With `--minutes 0` nothing is run: `--report` makes the page's section and the plot of what was kept of these seeds.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys

from rich.console import Console

from tests.soak import report, results
from tests.soak.run import run


def main() -> int:
    """Everything; the exit code."""
    parser = argparse.ArgumentParser(prog="soak", description="Everything at once on a real cluster, for a while.")
    parser.add_argument("--minutes", type=int, default=30, help="of each seed")
    parser.add_argument("--seed", type=int, action="append", default=[], help="may be given several times")
    parser.add_argument("--name", default="soak", help="the local cluster's name")
    parser.add_argument("--fault", action="append", default=[], help="only faults of this kind; several may be given")
    parser.add_argument("--report", action="store_true", help="renew docs/soak.svg and the section of the page")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up at the end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("soak: ended by a signal"))
    console = Console(width=160, highlight=False)
    seeds = options.seed or [random.randrange(10_000)]
    broke = [not _one(options, seed, console) for seed in seeds if options.minutes]
    if options.report:
        report.renew(seeds)
    return int(any(broke))


def _one(options: argparse.Namespace, seed: int, console: Console) -> bool:
    """Whether the soak of that seed broke nothing."""
    console.rule(f"seed {seed}, {options.minutes} minutes")
    way = {"name": options.name, "faults": options.fault, "keep": options.keep}
    result = run(seed=seed, minutes=options.minutes, console=console, **way)
    for table in results.tables(result):
        console.print(table)
    for wrong in result.wrong:
        console.print(f"broke: {wrong}", style="red", markup=False, soft_wrap=True)
    if not options.fault:
        console.print(f"kept in {result.save()}")
    return not result.wrong


if __name__ == "__main__":
    sys.exit(main())
