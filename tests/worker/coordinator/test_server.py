"""The coordinator over real connections: who is let in, and what members that come back bring with them."""

import asyncio
import contextlib
import dataclasses
import json
import socket
import time

import pytest

from elastic_worker import contract, wire
from elastic_worker.coordinator.membership import MembershipFile
from elastic_worker.coordinator.model import Generation, Pod
from elastic_worker.coordinator.part import part_of, read_part
from elastic_worker.coordinator.server import Coordinator
from elastic_worker.coordinator.state import CoordinatorState, Rules
from elastic_worker.coordinator.succession import Succession
from tests.kit.wait import until_async, within
from tests.worker.coordinator.states import make_group, make_pod
from tests.worker.job.local import free_port

TOKEN = "secret"


@contextlib.asynccontextmanager
async def coordinator(folder, *, membership=(), epoch=1, rules=Rules()):  # noqa: B008 - it never changes
    """One that serves; yields the way in."""
    file = folder / "membership"
    if membership:
        members = [{"name": make_pod(i).name, "uid": f"u{i}"} for i in membership]
        file.write_text(json.dumps({"wish": 1, "members": members, "min": 1, "max": 8}))
    now = time.monotonic()
    state = CoordinatorState("u0", epoch, rules, started=now, phase_since=now)
    masters = Succession("", job_uid="job", epoch=epoch)
    serving = Coordinator(state, MembershipFile(file), masters, token=TOKEN, job_uid="job", incarnation=3)
    door = Door(free_port(), state)
    task = asyncio.ensure_future(serving.serve(door.port))
    try:
        yield door
    finally:
        for line in door.lines:
            await line.close()
        task.cancel()
        await asyncio.wait({task})
        await asyncio.sleep(0.05)


class Door:
    """Where members dial in; whatever they opened is closed in the end."""

    def __init__(self, port, state):
        self.port, self.state, self.lines = port, state, []

    async def dial(self, index, **more):
        line, _ = await dial(self.port, index, **more)
        self.lines.append(line)
        return line


async def dial(port, index, *, token=TOKEN, incarnation=3, pod=None, **state):
    hello = {
        "uid": f"u{index}",
        "job": "job",
        "incarnation": incarnation,
        "epoch": 0,
        "pod": vars(make_pod(index)) if pod is None else pod,
        "warm": True,
        "runs": 0,
        **({"store": 4000} if index == 0 else {}),
        **state,
    }
    return await once_open(lambda: wire.dial("127.0.0.1", port, token=token, say=lambda _greeting: hello))


async def once_open(connect, *, seconds=10):
    """What it gives once somebody listens: a server begins to in its own time."""

    async def again_and_again():
        while True:
            try:
                return await connect()
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)

    return await within(seconds, again_and_again())


async def hear(line, key, *, seconds=10):
    """The next message that has that key."""

    async def next_one():
        while key not in (message := await line.receive()):
            pass
        return message[key]

    return await within(seconds, next_one())


async def test_members_that_know_the_token_are_formed_into_a_group(tmp_path):
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        lines = [await door.dial(index) for index in (1, 0)]
        groups = [Generation.from_message(await hear(line, "form")) for line in lines]
        assert [pod.uid for pod in groups[0].pods] == ["u0", "u1"]
        assert groups[0] == groups[1]
        assert (groups[0].number, groups[0].epoch, groups[0].store_port) == (1, 1, 4000)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"token": "guessed"}, "token"),
        ({"incarnation": 2}, "incarnation 2 is over"),
        ({"epoch": 5}, "newer master"),
        ({"contract": str(int(contract.VERSION) + 2)}, "contract"),
        ({"contract": str(int(contract.VERSION) - 2)}, "contract"),
    ],
)
async def test_whoever_does_not_belong_is_told_why(tmp_path, given, why):
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        with pytest.raises(wire.RefusedError, match=why):
            await door.dial(1, **given)


OPTIONAL = [field.name for field in dataclasses.fields(Pod) if field.name not in ("uid", "is_master")]


@pytest.mark.parametrize("lacking", OPTIONAL)
async def test_a_pod_of_another_release_is_let_in_without_what_that_one_does_not_say(tmp_path, lacking):
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        pod = {key: value for key, value in vars(make_pod(1)).items() if key != lacking}
        await door.dial(1, pod={**pod, "new": 1}, new={"new": 1}, contract=str(int(contract.VERSION) + 1))
        group = Generation.from_message(await hear(await door.dial(0), "form"))
        assert [pod.uid for pod in group.pods] == ["u0", "u1"]
        assert group.pods[1].address, "the others must find it"


@pytest.mark.parametrize("wrong", [{"started": "?"}, {"failed": 1}, {"stepped": None}, {"ready": 1, "joined": {}}])
async def test_what_nobody_can_read_costs_a_pod_nothing_but_its_word(tmp_path, wrong):
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        line = await door.dial(1, **wrong)
        line.send(wrong)
        line.send({"idle": 7.5})
        await hear(await door.dial(0), "form")
        member = door.state.members["u1"]
        assert (member.is_connected, member.idle_seconds, member.warm_at is not None) == (True, 7.5, True)


async def test_a_failure_of_which_little_is_said_is_a_failure(tmp_path):
    async with coordinator(tmp_path, membership=(0,)) as door:
        line = await door.dial(0)
        line.send({"started": await hear(line, "form") and 1, "runs": 1})
        line.send({"failed": {"new": 1}})
        assert await hear(line, "stop") == 1


async def test_the_last_lines_of_the_first_failure_come_with_the_end_of_the_job_and_in_no_status(tmp_path):
    async with coordinator(tmp_path, membership=(0, 1), rules=Rules(max_failures=1)) as door:
        master, worker = await door.dial(0), await door.dial(1)
        for line in (master, worker):
            line.send({"started": Generation.from_message(await hear(line, "form")).number, "runs": 1})
        worker.send({"failed": {"rank": 1, "exitCode": 3, "message": "rank 1 failed", "lastLines": "bad\nflag"}})
        after = {"message": "x", "isConsequence": True, "lastLines": "peer gone"}
        master.send({"failed": {"rank": 0, "exitCode": 1, **after}})
        for line in (master, worker):
            line.send({"stopped": await hear(line, "stop"), "runs": 0})
        statuses = []
        message = await within(10, master.receive())
        while "fail" not in message:
            statuses.append(message.get("status"))
            message = await within(10, master.receive())
        end = message["fail"]
        assert (end["pod"], end["rank"], end["scriptExitCode"]) == ("toy-worker-0", 1, 3)
        assert end["lastLines"] == "bad\nflag"
        assert any(statuses)
        assert "flag" not in json.dumps([*statuses, message.get("status")])


async def test_a_coordinator_that_does_not_know_the_token_is_not_obeyed():
    async def pretend(reader, writer):
        writer.write(json.dumps({"once": "0" * 32}).encode() + b"\n")
        await reader.readline()
        writer.write(json.dumps({"proof": "0" * 64, "epoch": 9}).encode() + b"\n")
        await writer.drain()
        writer.close()

    port = free_port()
    async with await asyncio.start_server(pretend, "127.0.0.1", port):
        with pytest.raises(wire.RefusedError, match="does not know the job's token"):
            await dial(port, 1)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b'{"once": 1}\n', b"[]\n", b"{" * 100_000])
async def test_strangers_that_talk_nonsense_do_not_disturb(tmp_path, said):
    async with coordinator(tmp_path, membership=(0,)) as door:
        reader, writer = await once_open(lambda: asyncio.open_connection("127.0.0.1", door.port))
        writer.write(said)
        line = await door.dial(0)
        assert Generation.from_message(await hear(line, "form")).number == 1
        writer.close()
        await reader.read()


async def test_a_new_coordinator_finds_the_group_that_trains_and_leaves_it_alone(tmp_path):
    group = make_group(0, 1, number=7).to_message()
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        line = await door.dial(0, runs=7, group=group)
        await door.dial(1, runs=7, group=group)
        status = await hear(line, "status")
        while status["state"] != "Running":
            status = await hear(line, "status")
        assert (status["generation"], status["members"]) == (7, ["toy-master-0", "toy-worker-0"])


async def test_each_member_is_told_its_part_and_one_of_an_earlier_release_the_whole_group(tmp_path):
    async with coordinator(tmp_path, membership=(0, 1, 2)) as door:
        lines = [await door.dial(index, parts=index != 2) for index in (2, 1, 0)]
        older, *parts = [await hear(line, "form") for line in lines]
        group = Generation.from_message(older)
        assert group.uids == {"u0", "u1", "u2"}
        assert [read_part(part, "whoever it is") for part in parts] == [part_of(group, "u1"), part_of(group, "u0")]


async def test_a_new_coordinator_finds_the_group_that_trains_by_the_parts_of_its_members(tmp_path):
    parts = {index: part_of(make_group(0, 1, 2, number=7), f"u{index}").to_message() for index in range(3)}
    async with coordinator(tmp_path, membership=(0, 1, 2)) as door:
        lines = {index: await door.dial(index, parts=True, runs=7, group=parts[index]) for index in (2, 1, 0)}
        status = await hear(lines[0], "status")
        while status["state"] != "Running":
            status = await hear(lines[0], "status")
        assert (status["generation"], status["worldSize"]) == (7, 3)
        assert status["members"] == ["toy-master-0", "toy-worker-0", "toy-worker-1"]


async def test_who_does_not_come_to_a_new_coordinator_is_lost_though_its_name_is_not_known(tmp_path):
    parts = {index: part_of(make_group(0, 1, 2, number=7), f"u{index}").to_message() for index in range(2)}
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        line = await door.dial(0, parts=True, runs=7, group=parts[0])
        await door.dial(1, parts=True, runs=7, group=parts[1])
        assert await hear(line, "stop") == 7
        assert door.state.change_reason == "Loss"


async def test_a_member_that_comes_back_with_an_old_group_stops_it(tmp_path):
    async with coordinator(tmp_path, membership=(0,)) as door:
        line = await door.dial(0)
        await hear(line, "form")
        returned = await door.dial(1, runs=5, group=make_group(0, 1, number=5, epoch=0).to_message())
        assert await hear(returned, "stop") == 5


async def test_a_later_master_is_found_in_the_folder_that_only_the_training_processes_know(tmp_path):
    group, folder = make_group(0, 1, number=5).to_message(), tmp_path / "run"
    folder.mkdir()
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        line = await door.dial(0, runs=5, group=group)
        await door.dial(1, runs=5, group=group, checkpointFolder=str(folder))
        later = Succession(str(folder), job_uid="job", epoch=2)
        await asyncio.to_thread(later.look)
        assert await hear(line, "stop") == 5


async def test_generations_go_on_counting_under_a_new_master(tmp_path):
    async with coordinator(tmp_path, membership=(0, 1), epoch=2) as door:
        await door.dial(1, group=make_group(9, 1, number=7, epoch=1).to_message())
        line = await door.dial(0)
        group = Generation.from_message(await hear(line, "form"))
        assert (group.number, group.epoch) == (8, 2)


async def test_the_step_goes_on_from_what_was_saved_whatever_was_on_its_way_when_the_group_formed(tmp_path):
    """Else it stands still until all that was lost is done again."""
    async with coordinator(tmp_path, membership=(0,)) as door:
        line = await door.dial(0)
        await hear(line, "form")
        line.send({"started": 1, "runs": 1, "step": 0})
        line.send({"beat": 1, "step": 970})
        line.send({"failed": {"message": "boom"}})
        line.send({"stopped": await hear(line, "stop"), "step": 1000, "lost": 900, "runs": 0, "store": 4001})
        assert (await hear(line, "form"))["step"] == 100
        line.send({"beat": 1, "step": 1000})
        line.send({"started": 2, "runs": 2, "step": 100})
        line.send({"beat": 1, "step": 101})
        await asyncio.sleep(wire.BEAT_SECONDS)
        status = await hear(line, "status")
        while status["training"]["step"] != 101:
            assert status["training"]["step"] <= 101
            status = await hear(line, "status")


async def test_a_second_connection_of_a_pod_replaces_the_first(tmp_path):
    async with coordinator(tmp_path, membership=(0,)) as door:
        first = await door.dial(0)
        await hear(first, "form")
        second = await door.dial(0, runs=1, group=make_group(0).to_message())
        assert await hear(second, "status")
        with pytest.raises(ConnectionError):
            await hear(first, "no such word")


async def test_hundreds_of_pods_may_dial_in_at_one_moment(tmp_path):
    """Who finds the queue of a busy coordinator full is heard a second later at best."""
    async with coordinator(tmp_path) as door:
        _, writer = await once_open(lambda: asyncio.open_connection("127.0.0.1", door.port))
        writer.close()
        with contextlib.ExitStack() as dialled:
            for _ in range(300):
                dialled.enter_context(socket.create_connection(("127.0.0.1", door.port), timeout=0.5))
        await asyncio.sleep(1)


async def test_who_comes_while_the_others_stop_is_told_to_stop_too(tmp_path):
    """Else its processes would be waited for without end."""
    group = make_group(9, 1, 2, number=7, epoch=1).to_message()
    async with coordinator(tmp_path, membership=(0, 1, 2), epoch=2) as door:
        first = await door.dial(1, runs=7, group=group)
        assert await hear(first, "stop") == 7
        second = await door.dial(2, runs=7, group=group)
        assert await hear(second, "stop") == 7


async def test_a_short_silence_is_not_noticed_and_a_longer_one_is_a_loss(tmp_path):
    async with coordinator(tmp_path, membership=(0,)) as door:
        line = await door.dial(0)
        for _ in range(2):
            await asyncio.sleep(wire.SILENCE_SECONDS - 1)
            assert door.state.members["u0"].is_connected
            line.send({"beat": 1})
        await asyncio.sleep(wire.SILENCE_SECONDS + 1)
        assert not door.state.members["u0"].is_connected


async def test_a_pod_that_changes_groups_in_place_is_missed_sooner_and_not_waited_for(tmp_path):
    async with coordinator(tmp_path, membership=(0, 1)) as door:
        await door.dial(0, kind=contract.IN_PLACE, ready=True)
        await door.dial(1)
        members = door.state.members
        await until_async(
            "one is missed", lambda: not (members["u0"].is_connected and members["u1"].is_connected), seconds=30
        )
        assert members["u1"].is_connected, "both are silent"
        assert time.monotonic() >= members["u0"].presence.until, "it is not waited for"
