"""Groups of NCCL, and GPU tensors in groups of gloo: formed, exchanged, aborted; the state is handed on."""

from pathlib import Path

import pytest
import torch

from tests.worker.gpu import cards
from tests.worker.library import processes

CARDS = cards.for_two_ranks(torch.cuda.device_count(), cards.nccl_library(Path(torch.__file__).parents[1]))
two_ranks = pytest.mark.skipif(CARDS is None, reason="needs two GPUs, or an NCCL that lets two ranks share one")
PRELUDE = """
    from elastic_worker.library import ddp, handover
    device = torch.device("cuda", int(os.environ.get("ELASTIC_TEST_GPU", "0")))
    torch.cuda.set_device(device)

    def form_on(name, rank, world, backend, **options):
        where = {"host": "127.0.0.1", "port": port, "prefix": name, "rank": rank, "world": world, "timeout": 60.0}
        return groups.form(backend=backend, device=device, **where, **options)

    def gradient(model, rows):
        model.zero_grad()
        model(rows).square().mean().backward()
        return [p.grad.clone() for p in model.parameters()]
"""

ALONE = """
    one = form_on("one", 0, 1, "nccl")
    groups.install(one)
    on_gpu, on_host = torch.full((1000,), 3.0, device=device), torch.ones(3)
    dist.all_reduce(on_gpu)
    dist.all_reduce(on_host)
    bare = torch.nn.Linear(8, 4).to(device)
    rows = torch.randn(16, 8, device=device)
    expected = gradient(bare, rows)
    model = ddp.ElasticDDP(bare)
    model.regroup(one)
    first = gradient(model, rows)
    shared = handover.hand_over(
        one, capture=dict, apply=lambda state: None, have=True, step=7, mark=handover.mark_of(bare.parameters())
    )
    two = form_on("two", 0, 1, "nccl")
    groups.install(two)
    model.regroup(two)
    second = gradient(model, rows)
    groups.discard(one)
    dist.all_reduce(on_gpu)
    torch.cuda.synchronize()
    groups.abort(two)
    three = form_on("three", 0, 1, "nccl")
    groups.install(three)
    dist.all_reduce(on_gpu)
    tell(
        sums=[on_gpu.sum().item(), on_host.sum().item()],
        equal=[all(map(torch.equal, expected, grads)) for grads in (first, second)],
        shared=[shared.source, shared.step, shared.received, shared.bytes],
        device=str(groups.control_device(three)),
    )
"""

TOGETHER = """
    torch.manual_seed(rank)
    bare = torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.ReLU(), torch.nn.Linear(300, 1)).to(device)
    optimizer = torch.optim.AdamW(bare.parameters(), lr=0.01)
    rows = torch.randn(8, 64, device=device, generator=torch.Generator(device).manual_seed(5))
    if rank == 0:
        gradient(bare, rows)
        optimizer.step()

    def apply(state):
        bare.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    formed = form_on("both", rank, 2, BACKEND)
    groups.install(formed)
    shared = handover.hand_over(
        formed,
        capture=lambda: {"model": bare.state_dict(), "optimizer": optimizer.state_dict()},
        apply=apply,
        have=rank == 0,
        step=3 if rank == 0 else -1,
        mark=handover.mark_of(bare.parameters()) if rank == 0 else 0,
    )
    expected = gradient(bare, rows)
    model = ddp.ElasticDDP(bare)
    model.regroup(formed)
    mine = rows[4 * rank : 4 * rank + 4]
    averaged = gradient(model, mine)
    found = averaged
    if formed.backend == "gloo":  # as where groups change in place
        model.regroup(formed, can_be_given_up=True)
        found = gradient(model, mine)
        formed.calls.check()
    state = [*bare.state_dict().values(), *(value for each in optimizer.state.values() for value in each.values())]
    everybodys = [None, None]
    dist.all_gather_object(everybodys, [tensor.double().cpu().tolist() for tensor in state])
    tell(
        received=shared.received,
        on=sorted({str(each["exp_avg"].device) for each in optimizer.state.values()}),
        same=everybodys[0] == everybodys[1],
        close=all(torch.allclose(one, two, atol=1e-5) for one, two in zip(expected * 2, averaged + found)),
    )
"""

LOST = """
    formed = form_on("both", rank, 2, BACKEND)
    groups.install(formed)
    tensor = torch.ones(1000, device=device)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    if rank == 1:
        time.sleep(600)  # killed meanwhile: never comes to the next collective
    freed = []

    def train():
        try:
            dist.all_reduce(tensor)
            torch.cuda.synchronize()
        except Exception as error:
            freed.append(groups.is_communication_error(error))

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    time.sleep(2)
    groups.abort(formed)
    thread.join(60)
    alone = form_on("alone", 0, 1, BACKEND)
    groups.install(alone)
    again = torch.ones(10, device=device)
    dist.all_reduce(again)
    tell(freed=not thread.is_alive(), known=freed, total=again.sum().item())
"""


def test_a_process_alone_goes_from_one_nccl_group_to_the_next_and_on_after_an_abort():
    (told,) = processes.run(PRELUDE + ALONE, 1, cold=True, seconds=120)
    assert told["sums"] == [3000.0, 3.0]
    assert told["equal"] == [True, True]
    assert told["shared"] == [0, 7, False, 0]
    assert told["device"] == "cpu", "gloo is there for host tensors"


def test_gloo_hands_the_state_on_gpus_to_a_newcomer_and_averages_gradients():
    """Two processes on one GPU."""
    told = processes.run(PRELUDE + TOGETHER.replace("BACKEND", "'gloo'"), 2, cold=True, seconds=120)
    check_together(told, on=[["cuda:0"], ["cuda:0"]])


def test_gloo_frees_who_waits_with_a_gpu_tensor_for_a_lost_peer():
    told = processes.run(PRELUDE + LOST.replace("BACKEND", "'gloo'"), 2, cold=True, seconds=180, lost=(1,))
    assert told[0] == {"freed": True, "known": [True], "total": 10.0}


@two_ranks
def test_nccl_hands_the_state_to_a_newcomer_and_averages_gradients():
    told = processes.run(with_nccl(TOGETHER), 2, cold=True, seconds=120)
    check_together(told, on=[[f"cuda:{card}"] for card in CARDS])


@two_ranks
def test_nccl_frees_who_waits_for_a_lost_peer():
    """Whether an error is raised, or the collective just ends, is left to NCCL."""
    told = processes.run(with_nccl(LOST), 2, cold=True, seconds=180, lost=(1,))
    assert (told[0]["freed"], told[0]["total"]) == (True, 10.0)


def with_nccl(script):
    """Each rank on its card; NCCL asks for the variable when it makes its first communicator."""
    place = f'    os.environ.update(ELASTIC_TEST_GPU=str({CARDS}[rank]), {cards.SHARES}="1")\n'
    return place + PRELUDE + script.replace("BACKEND", "'nccl'")


def check_together(told, *, on):
    assert [each["received"] for each in told] == [False, True]
    assert [each["on"] for each in told] == on
    assert [each["same"] for each in told] == [True, True]
    assert [each["close"] for each in told] == [True, True]
