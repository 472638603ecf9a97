"""State that goes from a survivor to those that lack it."""

import torch

from elastic_worker.library import handover
from tests.worker.library import processes


def test_a_mark_tells_states_apart():
    one = [torch.arange(100.0), torch.zeros(0), torch.tensor(3)]
    other = [tensor.clone() for tensor in one]
    assert handover.mark_of(one) == handover.mark_of(other)
    other[0][-1] += 1
    assert handover.mark_of(one) != handover.mark_of(other)


def test_the_highest_step_goes_to_newcomers_and_to_who_is_behind():
    told = processes.run(
        """
        import zlib
        from elastic_worker.library import handover
        torch.manual_seed(rank)
        model = torch.nn.Sequential(torch.nn.Linear(700, 700), torch.nn.BatchNorm1d(700))
        optimizer = torch.optim.AdamW(model.parameters())
        if rank:
            model(torch.randn(8, 700)).square().sum().backward()
            optimizer.step()
        def capture():
            return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": (2, "x")}
        def apply(state):
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            assert state["epoch"] == (2, "x")
        def digest():
            tensors = [*model.state_dict().values()]
            for one in optimizer.state_dict()["state"].values():
                tensors += one.values()
            return zlib.crc32(b"".join(t.numpy().tobytes() for t in tensors))
        formed = form("one", rank, 3)
        groups.install(formed)
        mark = handover.mark_of(model.parameters())
        first = handover.hand_over(
            formed, capture=capture, apply=apply, have=rank > 0, step=(0, 4, 5)[rank], mark=mark
        )
        mark = handover.mark_of(model.parameters())
        second = handover.hand_over(formed, capture=capture, apply=apply, have=True, step=5, mark=mark)
        none = handover.hand_over(formed, capture=capture, apply=apply, have=False, step=0, mark=0)
        dist.barrier()
        tell(first=[first.step, first.source, first.received], second=[second.received, second.bytes],
             none=none.source, digest=digest())
        """,
        3,
    )
    assert [one["first"] for one in told] == [[5, 2, True], [5, 2, True], [5, 2, False]]
    assert all(one["second"] == [False, 0] and one["none"] is None for one in told)
    assert len({one["digest"] for one in told}) == 1
