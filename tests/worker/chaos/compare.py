"""Injects many faults into library jobs, and some of them into torchrun, in turn, so that noise affects both alike."""

import json
import random

from tests.worker.chaos.faults import FEWEST
from tests.worker.chaos.restarts import Restarts, TorchrunJob
from tests.worker.chaos.run import LIBRARY_OPTIONS, Plan, run, torment_only

ROUND_FAULTS = 200
COMPARED = 5
"""Faults of each round that torchrun gets, too: it needs most of the time between two to train again."""
COMPARED_SECONDS = (15.0, 25.0)
FAST_SECONDS = (0.3, 1.7)


def compare(folder, *, faults, seed, say):
    """Until there were so many against the library. Prints a table after each round, then a line of JSON.

    Raises AssertionError where a sample was left out or came twice, or a checkpoint was read that nobody needed.
    """
    ours, theirs, fast = [], [], []
    while (done := sum(each.torment.faults for each in [*ours, *fast])) < faults:
        if ours:
            say(table(summary(ours, theirs, fast)))
        plan = Plan(seed + 2 * len(ours), moments=min(COMPARED, faults - done), between=COMPARED_SECONDS)
        say(f"{done} of {faults} faults; next: the library, rarely")
        ours.append(run(folder / f"ours-{len(ours)}", plan, say=say, library=True))
        say("the same faults, torchrun")
        theirs.append(_restarts(folder / f"theirs-{len(theirs)}", plan, say=say))
        done += ours[-1].torment.faults
        if done < faults:
            say(f"{done} of {faults} faults; next: the library, often")
            moments = min(ROUND_FAULTS - COMPARED, faults - done)
            plan = Plan(plan.seed + 1, moments=moments, between=FAST_SECONDS)
            fast.append(run(folder / f"fast-{len(fast)}", plan, say=say, library=True))
    figures = summary(ours, theirs, fast)
    say(table(figures))
    say(json.dumps(figures))


def _restarts(folder, plan, *, say):
    with TorchrunJob(folder, *LIBRARY_OPTIONS, fewest=FEWEST, network=True) as job:
        return torment_only(job, Restarts(job, random.Random(plan.seed)), plan, say=say)


def summary(ours, theirs, fast):
    """Of all rounds. `ratios`: what torchrun lost over what the library lost, under the same faults."""
    everything = [*ours, *fast]
    library, torchrun, often = _sum([each.torment for each in ours]), _sum(theirs), _sum([o.torment for o in fast])
    return {
        "faults": sum(each.torment.faults for each in everything),
        "samples": sum(each.samples for each in everything),
        "checkpoints_read": sum(each.read for each in everything),
        "library": library,
        "torchrun": torchrun,
        "library_often": often,
        "ratios": {
            "lost_torchrun_over_library": round(torchrun["lost"] / max(library["lost"], 0.001), 2),
            "goodput_library": library["goodput"],
            "goodput_torchrun": torchrun["goodput"],
        },
    }


def _sum(torments):
    faults, seconds = sum(each.faults for each in torments), sum(each.seconds for each in torments)
    lost = sum(each.lost for each in torments)
    goodput = round(1 - lost / seconds, 4) if seconds else None
    by_kind = {}
    for kind in sorted({kind for each in torments for kind in each.by_kind}):
        counts, costs = zip(*(each.by_kind.get(kind, (0, 0.0)) for each in torments), strict=True)
        by_kind[kind] = [sum(counts), round(sum(costs), 1)]
    return {
        "faults": faults,
        "seconds": round(seconds, 1),
        "lost": round(lost, 1),
        "goodput": goodput,
        "by_kind": by_kind,
    }


def table(figures):
    """For people."""
    rows = [("", "faults", "seconds", "lost", "lost per fault", "goodput")]
    for name, told in (("library", "library"), ("torchrun", "torchrun"), ("library_often", "library, often")):
        part = figures[name]
        per_fault = f"{part['lost'] / part['faults']:.2f}" if part["faults"] else "-"
        rows.append(
            (told, str(part["faults"]), f"{part['seconds']}", f"{part['lost']}", per_fault, str(part["goodput"]))
        )
    lines = [f"{row[0]:<15}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in rows]
    lines += _kinds(figures["library"]["by_kind"], figures["torchrun"]["by_kind"])
    samples, read = figures["samples"], figures["checkpoints_read"]
    lines.append(f"{samples} samples, none left out, none twice; {read} checkpoints read, each after the loss of all")
    return "\n".join(lines)


def _kinds(library, torchrun):
    """The seconds lost for each fault of a kind."""
    lines = [f"{'':<22}{'faults':>8}{'library':>10}{'torchrun':>10}"]
    for kind in sorted(library.keys() | torchrun.keys()):
        (count, ours), (also, theirs) = library.get(kind, (0, 0.0)), torchrun.get(kind, (0, 0.0))
        lines.append(f"{kind:<22}{count:>8}{ours / max(count, 1):>8.2f} s{theirs / max(also, 1):>8.2f} s")
    return lines
