"""Checks that the recorded commits apply every sample exactly once per epoch."""

from types import MappingProxyType

from elastic_worker.library.sampler import Sampler


def assert_exactly_once(commits, *, length, batch, micro, steps, may_lack=MappingProxyType({})):
    """Steps 1 to `steps`, each with its global batch over all ranks; `commits` is of `Written.commits`.

    `may_lack` says of how many ranks a step may lack the lines: a process that was killed in it may have had no time to
    write down what the others, who have its gradients, committed.
    """
    sampler = Sampler(length, global_batch=batch, micro_batch=micro, seed=7)
    per_epoch = sampler.batches_left()
    assert list(commits) == list(range(1, steps + 1))
    for step, lines in commits.items():
        sampler.epoch, first = (step - 1) // per_epoch, (step - 1) % per_epoch * batch
        world = lines[0]["world"]
        assert {line["world"] for line in lines} == {world}
        by_rank = {line["rank"]: sorted(line["samples"]) for line in lines}
        assert len(by_rank) == len(lines), f"step {step}: a rank committed it twice"
        missing = set(range(world)) - by_rank.keys()
        assert len(missing) <= may_lack.get(step, 0), f"step {step}: nothing of ranks {missing}"
        for rank in missing:
            by_rank[rank] = sorted(_indices(sampler.share_at(first, rank, world)))
        together = sorted(index for samples in by_rank.values() for index in samples)
        assert together == sorted(_indices(sampler.share_at(first, 0, 1))), f"step {step}"


def _indices(share):
    return [] if share.is_dummy else [index for micro in share.micro for index in micro.indices]
