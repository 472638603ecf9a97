"""How a pod goes from one state to the next, where it is easy to get wrong."""

from elastic_worker.contract import RESTART
from elastic_worker.coordinator import main
from elastic_worker.coordinator.member import NotReady, Starting
from elastic_worker.protocol.reports import Ready
from tests.worker.coordinator.states import member


def test_a_pod_that_lacks_a_process_changes_groups_as_it_did():
    pod = member(1)
    pod.mark_ready(Ready(True, 0, holds=True, change_mode=RESTART), 1.0)
    pod.mark_ready(Ready(False, 0, holds=True, change_mode=""), 2.0)
    assert pod.change_mode == RESTART


def test_a_pod_whose_start_was_stopped_can_be_told_to_start_again():
    pod = member(1)
    pod.readiness = Starting()
    pod.mark_stopped("")
    assert pod.readiness == NotReady()


def test_the_coordinator_is_made_in_the_loop_that_it_runs_in(monkeypatch):
    """Python 3.9 binds an event to the loop in which it is made."""
    loops = []

    class Coordinator:
        async def serve(self, _port):
            loops.append(main.asyncio.get_running_loop())

    def coordinator_of(_settings):
        loops.append(main.asyncio.get_running_loop())
        return Coordinator()

    monkeypatch.setattr(main, "coordinator_of", coordinator_of)
    monkeypatch.setattr(main, "read", lambda _environ: type("Settings", (), {"port": 0}))
    monkeypatch.setattr(main, "set_up", lambda _name: None)
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)
    monkeypatch.setattr(main, "die_with", lambda _parent: None)
    main.main(launcher=0)
    assert loops[0] is loops[1]
