"""Who sends how many bytes in a hand-over, where they are put, and what becomes of it when a newcomer is lost."""

import pytest

from tests.worker.library import processes

MB = 2**20
STATE = """
    import struct
    from elastic_worker.library import chain, handover, handover_chain, releases, sockets

    def high_water():
        return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

    def traffic():
        # What the kernel has counted: bytes that peers have acknowledged, and bytes received.
        sent = received = 0
        for number in sockets._numbers():
            with sockets._opened(number) as sock:
                if sock is not None and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    info = struct.unpack_from("QQ", sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136), 120)
                    sent, received = sent + info[0], received + info[1]
        return sent, received

    import socket
    own = {"large": torch.full((WIDTH, 1000), float(rank)), "small": torch.full((3, 5), rank, dtype=torch.int16)}

    def hand(formed, have, existing=lambda: {"tensors": own}, step=None):
        def apply(state):
            for name, tensor in state["tensors"].items():
                own[name].copy_(tensor)
            assert state["values"] == ("a", 1)
        return handover.hand_over(
            formed, capture=lambda: {"tensors": own, "values": ("a", 1)}, apply=apply, existing=existing,
            have=have, step=(1 if have else -1) if step is None else step, mark=int(have),
        )
    """


def script(body, *, width=50_000):
    """`width`: of a state of 4 kB each; 50,000 are 200 MB."""
    return STATE.replace("WIDTH", str(width)) + body


@pytest.mark.parametrize("newcomers", [1, 2, 3])
def test_the_source_sends_once_and_who_needs_nothing_gets_nothing(newcomers):
    told = processes.run(
        script(
            f"""
    newcomers = {newcomers}
    world = 2 + newcomers
    formed = form("one", rank, world)
    groups.install(formed)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, high = traffic(), high_water()
    handed = hand(formed, have=rank < 2)
    taken = high_water() - high
    store = formed.store
    store.add("ready", 1)
    while store.add("ready", 0) < world:
        time.sleep(0.01)
    sent, received = (now - then for now, then in zip(traffic(), before))
    tell(sent=sent, received=received, taken=taken, source=handed.source, bytes=handed.bytes,
         right=all(bool((each == 0).all()) for each in own.values()))
    dist.barrier()
    """
        ),
        2 + newcomers,
    )
    state = 200_000_000
    few = 8 * MB
    sent, received = [one["sent"] for one in told], [one["received"] for one in told]
    assert [state <= each < state + few for each in sent] == [True, False] + [True] * (newcomers - 1) + [False]
    assert [state <= each < state + few for each in received] == [False, False] + [True] * newcomers
    assert max(sent[1], sent[-1], received[0], received[1]) < few
    assert all(one["taken"] < 64 * MB for one in told), [one["taken"] for one in told]
    assert [one["bytes"] > state for one in told] == [True, False] + [True] * newcomers
    assert [one["right"] for one in told] == [True, False] + [True] * newcomers
    assert {one["source"] for one in told} == {0}


def test_who_needs_nothing_waits_for_nobody():
    processes.run(
        script(
            """
    formed = form("one", rank, 3)
    groups.install(formed)
    def existing():
        formed.store.wait(["rank 1 trains on"])
        return {}
    hand(formed, have=rank < 2, existing=existing)
    if rank == 1:
        formed.store.set("rank 1 trains on", "")
    assert own["small"][0, 0] == (0, 1, 0)[rank]
    dist.barrier()
    """,
            width=1000,
        ),
        3,
    )


def test_tensors_of_every_kind_arrive_whether_there_are_such_or_not():
    told = processes.run(
        script(
            """
    torch.manual_seed(7)
    tied = torch.randn(600, 600)
    images = torch.randn(8, 300, 20, 20).to(memory_format=torch.channels_last)
    def tensors():
        return [torch.zeros(0), torch.tensor(3), torch.tensor([True, False]), torch.randn(40_001).bfloat16(),
                torch.randn(5, 3).t(), torch.randn(700, 700).t(), torch.randn(30, 300_000), images,
                torch.tensor([1 + 2j]).conj(), torch.ones(1).expand(7), tied, tied, torch.randn(600, 600).double(),
                *[torch.randn(200, 200) for _ in range(150)]]
    right = {"list": tensors(), "sparse": torch.ones(3).to_sparse()}
    got = {}
    def existing():
        like = [torch.empty_like(each) for each in right["list"]]
        like[6] = torch.zeros(30, 299_999)
        return {"list": like if rank == 1 else like[:3]}
    formed = form("one", rank, 3)
    groups.install(formed)
    handover.hand_over(
        formed, capture=lambda: right, apply=got.update, existing=existing, have=rank == 0, step=1, mark=1
    )
    if rank:
        assert all(torch.equal(one, two) for one, two in zip(got["list"], right["list"]))
        assert [one.dtype for one in got["list"]] == [two.dtype for two in right["list"]]
        assert torch.equal(got["sparse"].to_dense(), torch.ones(3)) and got["list"][10] is got["list"][11]
        tell(count=len(got["list"]))
    dist.barrier()
    """,
            width=1,
        ),
        3,
    )
    assert [one.get("count") for one in told] == [None, 163, 163]


@pytest.mark.parametrize("old", [0, 1, 2])
def test_where_a_pod_is_of_an_older_release_all_get_the_broadcast(old):
    told = processes.run(
        script(
            f"""
    if rank == {old}:
        releases.KNOWN = ()
    formed = form("one", rank, 3)
    groups.install(formed)
    handed = hand(formed, have=rank < 2)
    tell(bytes=handed.bytes, small=own["small"][0, 0].item())
    dist.barrier()
    """,
            width=1000,
        ),
        3,
    )
    assert [one["small"] for one in told] == [0, 1, 0]
    assert len({one["bytes"] for one in told}) == 1
    assert told[1]["bytes"] > 4_000_000


def test_a_source_that_cannot_capture_its_state_says_so_to_those_that_wait():
    told = processes.run(
        script(
            """
    formed = form("one", rank, 4)
    groups.install(formed)
    def fail():
        raise ValueError("no state")
    try:
        handover.hand_over(formed, capture=fail, apply=print, have=rank < 2, step=1, mark=0)
        tell(error="")
    except (ValueError, RuntimeError) as error:
        tell(error=str(error))
    dist.barrier()
    """,
            width=1,
        ),
        4,
    )
    assert [one["error"].split(",")[0] for one in told] == ["no state", "", "rank 0", "rank 0"]


@pytest.mark.parametrize("lost", [1, 2, 3])
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_a_newcomer_that_is_lost_in_the_middle_frees_all_others_and_they_begin_again(lost, signal):
    """A coordinator aborts the group of those that are left; who has noticed by itself does so too."""
    told = processes.run(
        script(
            f"""
    if rank == {lost}:
        pass_on = chain.Chain.pass_on
        def give_up(self, piece):
            pass_on(self, piece)
            if self.bytes > 20_000_000:
                os.kill(os.getpid(), signal.{signal})
        chain.Chain.pass_on = give_up
    handover_chain.PIECE_BYTES = 2**20
    formed = form("one", rank, 4)
    groups.install(formed)
    timer = threading.Timer(3.0, groups.abort, [formed])
    timer.start()
    try:
        hand(formed, have=rank == 0)
        error = None
    except Exception as raised:
        error = raised
        groups.abort(formed)
    tell(freed=error is None or groups.is_communication_error(error), right=own["small"][0, 0].item() == 0)
    timer.join()
    groups.discard(formed)
    again = form("two", rank - (rank > {lost}), 3)
    groups.install(again)
    hand(again, have=rank == 0)
    tell(after=[bool((each == 0).all()) for each in own.values()])
    os._exit(0)
    """,
            width=20_000,
        ),
        4,
        lost=(lost,),
    )
    left = [one for rank, one in enumerate(told) if rank != lost]
    assert all(one["freed"] and one["after"] == [True, True] for one in left)
    assert not told[3]["right"] if lost != 3 else True
