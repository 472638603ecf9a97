"""A training process is asked for a checkpoint after the step that was agreed on, and after no other."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import elastic_worker as elastic
from elastic_worker import contract
from elastic_worker.processes import saving, steps
from tests.kit.wait import until


class Script:
    """Does steps in a thread; `asked` are those after which it was asked, `is_taken` whether it heeds that."""

    def __init__(self, path):
        steps.create(path)
        self.path, self.done, self.asked, self.is_heeding = path, 0, [], True
        self._hooks = steps._hooks(str(path), self)

    def make(self):
        self.asked.append(self.done + 1)

    def is_taken(self):
        return self.is_heeding

    def do(self, count):
        """So many steps, as far as it gets."""

        def run():
            for _ in range(count):
                self._hooks.before()
                self._hooks.after()
                self.done += 1

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def waits_at(self, step):
        until("it to wait", lambda: steps.read(self.path).waits_at == step, seconds=20)


@pytest.fixture
def script(tmp_path, monkeypatch):
    for name in ("AGREE_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(steps, name, 60.0)
    return Script(tmp_path / "1.steps")


def test_a_script_waits_after_the_proposed_step_and_is_asked_once_it_is_agreed_on(script):
    steps.propose(script.path, 3)
    thread = script.do(3)
    script.waits_at(3)
    assert (script.done, script.asked) == (2, [])
    steps.agree(script.path, 3)
    thread.join(20)
    assert (script.done, script.asked) == (3, [3])


def test_a_script_continues_unasked_when_the_proposal_is_taken_back(script):
    steps.propose(script.path, 3)
    thread = script.do(5)
    script.waits_at(3)
    steps.propose(script.path, 0)
    thread.join(20)
    assert (script.done, script.asked) == (5, [])


def test_a_script_is_asked_after_an_agreed_step_even_if_another_is_proposed_meanwhile(script):
    steps.propose(script.path, 3)
    steps.agree(script.path, 3)
    steps.propose(script.path, 9)
    script.do(4).join(20)
    assert script.asked == [3]


def test_once_it_has_taken_the_request_it_does_no_further_step_before_the_change_is_given_up(script):
    steps.propose(script.path, 2)
    steps.agree(script.path, 2)
    thread = script.do(4)
    until("the request", lambda: script.asked == [2], seconds=20)
    thread.join(0.2)
    assert script.done == 2
    steps.propose(script.path, 0)
    thread.join(20)
    assert script.done == 4


def test_a_script_that_does_not_look_for_requests_is_not_held_up(script):
    script.is_heeding = False
    steps.propose(script.path, 2)
    steps.agree(script.path, 2)
    script.do(4).join(20)
    assert script.done == 4


def test_who_hears_nothing_of_what_was_proposed_goes_on_after_a_while(script, monkeypatch):
    for name in ("AGREE_SECONDS", "STOP_SECONDS"):
        monkeypatch.setattr(steps, name, 0.05)
    steps.propose(script.path, 1)
    script.do(2).join(20)
    assert (script.done, script.asked) == (2, [])


def test_should_save_is_true_once_for_each_request_and_never_where_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.delenv(contract.ENV_SAVE_FILE, raising=False)
    assert not elastic.should_save()
    monkeypatch.setenv(contract.ENV_SAVE_FILE, str(tmp_path / "save"))
    request = saving.CheckpointRequest(os.environ)
    for _ in range(2):
        assert not elastic.should_save()
        request.make()
        assert not request.is_taken()
        assert elastic.should_save()
        assert request.is_taken()


def test_a_signal_is_sent_only_to_a_script_that_handles_it(tmp_path):
    heard = []
    environ = {contract.ENV_SAVE_FILE: str(tmp_path / "save"), contract.ENV_CHECKPOINT_SIGNAL: "SIGUSR1"}
    request = saving.CheckpointRequest(environ)
    request.make()
    assert not request.is_taken()
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    try:
        request.make()
        assert heard == [signal.SIGUSR1]
        assert request.is_taken()
        assert saving.handles(os.getpid(), "SIGUSR1")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not saving.handles(os.getpid(), "SIGUSR1")


def test_should_save_can_be_imported_without_torch():
    code = "import elastic_worker, sys; elastic_worker.should_save(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
