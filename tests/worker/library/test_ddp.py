"""One wrapper object, many groups."""

import pytest
import torch

from elastic_worker.library import ddp
from tests.worker.library import processes


def test_a_call_before_the_group_names_what_is_missing():
    model = ddp.ElasticDDP(torch.nn.Linear(2, 2))
    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    with pytest.raises(RuntimeError, match=r"job\.restore"):
        model(torch.ones(1, 2))
    model.use_alone()
    model(torch.ones(1, 2)).sum().backward()
    assert model.module.weight.grad is not None


def test_a_wrapped_model_is_refused():
    with pytest.raises(TypeError, match="pass the bare module"):
        ddp.check_supported(torch.nn.Sequential(ddp.ElasticDDP(torch.nn.Linear(2, 2))))


def test_weighted_shares_in_many_groups_give_the_gradient_of_one_process():
    told = processes.run(
        """
        from elastic_worker.library import ddp
        torch.manual_seed(0)
        inner = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1)).double()
        data = torch.randn(11, 6, dtype=torch.float64)
        inner(data).mean().backward()
        wanted = [p.grad.clone() for p in inner.parameters()]
        model, calls, worst = ddp.ElasticDDP(inner), [], 0.0
        model.register_forward_hook(lambda *_: calls.append(1))
        for number in range(50):
            formed = form(f"g{number}", rank, 4) if number < 2 else formed
            groups.install(formed)
            model.regroup(formed)
            model.zero_grad()
            share = data[rank::4]
            for last, part in ((False, share[:1]), (True, share[1:])):
                model.set_sync(last)
                (model(part).sum() / 11 * 4).backward()
            worst = max(worst, *((p.grad - w).abs().max().item() for p, w in zip(inner.parameters(), wanted)))
        tell(worst=worst, calls=len(calls))
        dist.barrier()
        """,
        4,
    )
    assert all(one["worst"] < 1e-13 and one["calls"] == 100 for one in told)
