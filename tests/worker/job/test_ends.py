"""How a job ends: well, after a failure that repeats, with one rank earlier than the others; and commands of users."""

import os

import pytest

from elastic_worker import contract
from tests.worker.job.local import FAKE_TORCH, SCRIPTS, LocalJob
from tests.worker.job.pod import FAKE, REAL

pytestmark = [pytest.mark.programs, pytest.mark.timeout(240)]


def test_a_job_ends_when_its_last_rank_has(tmp_path, tree):
    os.mkfifo(tmp_path / "enough")
    with LocalJob(tmp_path, tree=tree, fewest=2, options=["--epochs", 5]) as job:
        job.start(0, 1)
        job.wait("the first rank's end", lambda: (tmp_path / "finished-0").exists())
        assert [pod.code for pod in job.all_pods] == [None, None]
        (tmp_path / "enough").write_text("")
        assert [job.wait_code(pod) for pod in job.all_pods] == [0, 0]
        assert (tmp_path / "finished-1").exists()
        job.assert_nothing_left()


def test_rank_that_hangs_at_its_end_is_found_after_the_others(tmp_path, tree):
    options = ["--epochs", 3, "--linger", 1000, "--linger-once"]
    with LocalJob(tmp_path, tree=tree, fewest=2, options=options, environ={contract.ENV_STALL_SECONDS: "4"}) as job:
        job.start(0, 1)
        assert [job.wait_code(pod) for pod in job.all_pods] == [0, 0], job.report()
        assert "toy-worker-0 has not ended though others have finished" in job.pods[0].said()


def test_a_script_that_fails_once_goes_on_after_its_last_checkpoint(tmp_path, tree):
    with LocalJob(
        tmp_path, tree=tree, fewest=2, options=["--epochs", 8, "--fail-at", 35, "--fail-rank", 1, "--fail-once"]
    ) as job:
        job.start(0, 1)
        assert [job.wait_code(pod) for pod in job.all_pods] == [0, 0]
        again = [step for step in job.steps() if step["generation"] == 2]
        assert again[0]["epoch"] == 3, "the epoch in which it failed"
        job.assert_no_epoch_skipped()


@pytest.mark.parametrize(
    ("how", "told", "tree"),
    [
        ("raise", "ValueError: the loss is NaN in step 35", REAL),
        ("kill", "rank 1 was killed by SIGKILL", FAKE),
        pytest.param("kill", "rank 1 was killed by SIGKILL", REAL, marks=pytest.mark.extended),
    ],
)
def test_repeated_failure_fails_the_job_with_rank_and_traceback(tmp_path, how, told, tree):
    options = ["--epochs", 8, "--fail-at", 35, "--fail-rank", 1, "--fail-how", how]
    with LocalJob(tmp_path, tree=tree, fewest=2, options=options, environ={contract.ENV_MAX_FAILURES: "2"}) as job:
        job.start(0, 1)
        assert [job.wait_code(pod) for pod in job.all_pods] == [contract.EXIT_DO_NOT_RETRY] * 2
        last_words = job.pods[0].said()[-3000:]
        assert told in last_words
        assert "failure 2 in a row" in last_words
        assert "rank 1" in last_words
        if how == "kill":
            assert "Last lines of rank 1 of toy-worker-0 (exit code -9):\n" in last_words
            assert "\n| it is killed in step 35\n" in last_words


def test_progress_forgets_earlier_failures(tmp_path, tree):
    """Four failures, each after a new checkpoint, where two in a row are the end."""
    options = ["--epochs", 4, "--steps", 3, "--fail-each-epoch"]
    with LocalJob(tmp_path, tree=tree, fewest=2, options=options, environ={contract.ENV_MAX_FAILURES: "2"}) as job:
        job.start(0, 1)
        assert [job.wait_code(pod) for pod in job.all_pods] == [0, 0], job.report()
        assert len(list(tmp_path.glob("failed-*"))) == 4
        job.assert_no_epoch_skipped()


@pytest.mark.parametrize(("how", "tree"), [("hang", REAL), ("spin", FAKE)])
def test_hanging_rank_is_reported_with_its_stack(tmp_path, how, tree):
    """Also where it uses all of its CPU, as ranks do that wait in a collective of NCCL's."""
    options = ["--epochs", 8, "--fail-at", 35, "--fail-rank", 1, "--fail-how", how, "--fail-once"]
    with LocalJob(tmp_path, tree=tree, fewest=2, options=options, environ={contract.ENV_STALL_SECONDS: "4"}) as job:
        job.start(0, 1)
        assert [job.wait_code(pod) for pod in job.all_pods] == [0, 0]
        assert "fail_if_asked" in job.pods[1].said(), "the stack of the process that hung is in its log"
        job.assert_no_epoch_skipped()


@pytest.mark.parametrize("preparing", [0, 2], ids=["at-once", "after-its-pod-is-connected"])
def test_a_launch_script_that_calls_torchrun_works_as_it_is(tmp_path, preparing, tree):
    script, train = tmp_path / "launch.sh", SCRIPTS / "train.py"
    script.write_text(
        f"set -e\nsleep {preparing}\necho prepared > $1/prepared\n"
        f"torchrun --nnodes=2 --nproc-per-node=2 --rdzv_backend=c10d --max_restarts=3 {train} $1 --epochs 3\n"
        "echo after > $1/after-$ELASTIC_ROLE\n"
    )
    with LocalJob(
        tmp_path, tree=tree, fewest=2, command=["--command", "--", "bash", str(script), str(tmp_path)]
    ) as job:
        job.start(0, 1)
        assert [job.wait_code(pod) for pod in job.all_pods] == [0, 0], job.report()
        assert {step["world"] for step in job.steps()} == {4}
        assert (tmp_path / "after-master").exists()
        assert (tmp_path / "after-worker").exists()
        assert "--max_restarts=3 is not used" in job.pods[0].said()
        job.assert_nothing_left()


def test_launch_script_flags_that_would_break_the_rendezvous_are_in_the_masters_status(tmp_path, tree):
    os.mkfifo(tmp_path / "enough")
    flags = "--rdzv_backend=c10d --rdzv_endpoint=192.0.0.1:1234 --max_restarts=3"
    (tmp_path / "launch.sh").write_text(f"torchrun {flags} {SCRIPTS / 'train.py'} $1 --epochs 3\n")
    command = ["--command", "--", "sh", str(tmp_path / "launch.sh"), str(tmp_path)]
    with LocalJob(tmp_path, tree=tree, fewest=1, command=command) as job:
        job.start(0)
        told = job.wait("the flags", lambda: job.status().get("unusedFlags"))
        assert told == ["--rdzv_endpoint=192.0.0.1:1234"]
        (tmp_path / "enough").write_text("")
        assert job.wait_code(job.pods[0]) == 0, job.report()


@FAKE_TORCH
def test_a_command_that_never_calls_torchrun_is_told_so(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=1, command=["--command", "--", "true"]) as job:
        job.start(0)
        assert job.wait_code(job.pods[0]) == contract.EXIT_DO_NOT_RETRY
        assert "without calling torchrun" in job.pods[0].said()


@FAKE_TORCH
def test_a_program_that_is_not_in_the_image_is_told_in_one_line(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=1, command=["--command", "--", "no-such-program"]) as job:
        job.start(0)
        assert job.wait_code(job.pods[0]) == contract.EXIT_DO_NOT_RETRY
        assert "no-such-program: there is no such program in the image" in job.pods[0].said()
        assert "Traceback" not in job.pods[0].said()


@FAKE_TORCH
def test_nothing_to_run_is_told_at_once(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=1, command=["--", "--no-such-flag", "train.py"]) as job:
        job.start(0)
        assert job.wait_code(job.pods[0]) == contract.EXIT_DO_NOT_RETRY
        assert "--no-such-flag" in job.pods[0].said()


def test_cold_processes_do_the_same_more_slowly(tmp_path, tree):
    with LocalJob(tmp_path, tree=tree, fewest=2, options=["--epochs", 4], environ={contract.ENV_WARM: "0"}) as job:
        job.start(0, 1)
        assert [job.wait_code(pod) for pod in job.all_pods] == [0, 0]
        job.assert_no_epoch_skipped()


@FAKE_TORCH
def test_a_command_that_calls_torchrun_wrongly_is_told_what_is_wrong(tmp_path, tree):
    command = ["--command", "--", "sh", "-c", "torchrun --no-such-flag train.py; echo it ended with $?; exit 3"]
    with LocalJob(tmp_path, tree=tree, fewest=1, command=command) as job:
        job.start(0)
        assert job.wait_code(job.pods[0]) == 3
        assert "--no-such-flag" in job.pods[0].said()
        assert "it ended with 2" in job.pods[0].said()
