"""Combines the records of a library job's processes: which batches counted, and whether each sample came once."""

import itertools
from collections import Counter, defaultdict

from tests.worker.job.local import LocalJob

SCRIPT = "library.py"
LENGTH, BATCH = 960, 48
STEPS = LENGTH // BATCH
"""The samples of one epoch."""


class LibraryJob(LocalJob):
    """A LocalJob whose script uses the library; steps are numbered over all epochs, so that a missing one shows."""

    def __init__(self, folder, *options, **more):
        super().__init__(folder, options=options, checkpoint=False, script=SCRIPT, **more)

    def wait_world(self, world, *, after=0, steps=5):
        """Wait until `world` processes have done `steps` steps in a generation later than `after`; return that."""

        def trains():
            done = defaultdict(Counter)
            for each in self.steps():
                if each["generation"] > after and each["world"] == world:
                    done[each["generation"]][each["rank"]] += 1
            latest = max(done, default=0)
            counts = done[latest]
            return len(counts) == world and min(counts.values()) >= steps and latest

        return self.wait(f"{world} processes to train", trains)

    def change(self):
        """The newest change in /status."""
        return self.status()["changes"][0]

    def lineage(self):
        """The lines of each step's ranks, of the latest generation that did it, since earlier ones do not count."""
        by_step = defaultdict(list)
        for each in self.steps():
            by_step[each["step"]].append(each)
        counted = {}
        for step, lines in by_step.items():
            latest = max(map(group_of, lines))
            counted[step] = [line for line in lines if group_of(line) == latest]
        return counted

    def repeated_steps(self):
        """Steps that were committed in more than one generation."""
        generations = defaultdict(set)
        for each in self.steps():
            generations[each["step"]].add(group_of(each))
        return sorted(step for step, seen in generations.items() if len(seen) > 1)

    def lost_steps(self):
        """How many steps were done again by groups in which somebody had the state still: one for each loss at most."""
        groups, pids = defaultdict(set), defaultdict(set)
        for each in self.steps():
            groups[group_of(each)].add(each["step"])
            pids[group_of(each)].add((each["pod"], each["pid"]))
        lost, known, done = 0, set(), set()
        for group in sorted(groups):
            if pids[group] & known:
                lost += len(groups[group] & done)
            known |= pids[group]
            done |= groups[group]
        return lost

    def assert_exactly_once(self):
        """No step is missing; and in each epoch that is over, each sample was applied once. Returns the steps done.

        A rank that was killed right after a step may not have written it down: only whole steps are looked at, and of
        those that are not, the samples of the missing ranks are taken to be the rest.
        """
        lineage = self.lineage()
        done = max(lineage)
        missing = [step for step in range(1, done + 1) if step not in lineage]
        assert not missing, f"steps {missing[:5]} were never done\n{self.report()}"
        epochs, incomplete = defaultdict(Counter), set()
        for lines in itertools.islice(lineage.values(), done):
            line = lines[0]
            samples = [sample for each in lines for sample in each["samples"]]
            assert len(samples) == len(set(samples)), f"step {line['step']} has a sample twice"
            if len({each["rank"] for each in lines}) < line["world"]:
                incomplete.add(line["epoch"])
            else:
                assert len(samples) == BATCH, lines
            epochs[line["epoch"]].update(samples)
        whole = [epoch for epoch in sorted(epochs)[:-1] if epoch not in incomplete]
        for epoch in whole:
            assert sorted(epochs[epoch].elements()) == list(range(LENGTH)), f"epoch {epoch}"
        for epoch in set(epochs) - set(whole):
            assert max(epochs[epoch].values()) == 1, f"epoch {epoch} has a sample twice"
        return done


def group_of(line):
    """The group of the line. If no pod knows the last generation any more, a new master counts from one again."""
    return line["master"], line["generation"]
