"""On logs of the real torchrun (see record_logs.py), and on what else a log may hold."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.build.traceback import MAX_LOG, MAX_TRACEBACK, TAIL_LINES, Failure, failure_of, last_lines_of

LOGS = Path(__file__).parent / "logs"
KEY_ERROR = """\
Traceback (most recent call last):
  File "/app/train.py", line 17, in <module>
    main()
  File "/app/train.py", line 13, in main
    load(step)
  File "/app/train.py", line 6, in load
    return {"loss": 1.0}["accuracy"] if step == 2 else 0
           ~~~~~~~~~~~~~^^^^^^^^^^^^
KeyError: 'accuracy'"""


def log(name):
    return (LOGS / f"{name}.log").read_text()


def failure(name):
    return failure_of(log(name))


@pytest.mark.parametrize("name", ["exception", "prefixed", "peer-failed"])
def test_an_exception_on_one_rank_gives_that_ranks_traceback(name):
    assert failure(name) == Failure(rank=1, exit_code=1, traceback=KEY_ERROR)


def test_a_traceback_that_torch_recorded_is_taken_from_its_summary():
    found = failure("recorded")
    assert (found.rank, found.exit_code) == (1, 1)
    assert found.traceback.startswith("Traceback (most recent call last):\n  File ")
    assert found.traceback.endswith("\nKeyError: 'accuracy'")
    assert "/app/train.py" in found.traceback


def test_a_recorded_traceback_is_found_where_only_the_summary_is_left():
    summary = log("recorded").partition("Failures:")[2]
    found = failure_of(summary)
    assert (found.rank, found.exit_code) == (1, 1)
    assert found.traceback.startswith("Traceback (most recent call last):\n  File ")
    assert found.traceback.endswith("\nKeyError: 'accuracy'")


def test_the_causes_of_an_exception_are_kept_with_it():
    assert failure("chained").traceback == (
        "Traceback (most recent call last):\n"
        '  File "/app/train.py", line 7, in <module>\n'
        '    open("/data/shard-17.tar")\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-17.tar'\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "/app/train.py", line 9, in <module>\n'
        '    raise RuntimeError("shard 17 is unreadable\\nsee the page on data") from error\n'
        "RuntimeError: shard 17 is unreadable\n"
        "see the page on data"
    )


def test_an_exit_code_without_a_traceback_is_told():
    found = failure("exit-code")
    assert (found.rank, found.exit_code) == (1, 3)
    assert "Traceback" not in found.traceback


def test_a_killed_process_gives_its_signal_and_not_the_traceback_of_an_attempt_before():
    assert failure("killed") == Failure(rank=0, exit_code=-9, traceback="")


def test_an_error_before_there_are_ranks_is_told():
    found = failure("import-error")
    assert found.exit_code == 1
    assert found.traceback.endswith("ModuleNotFoundError: No module named 'nowhere_to_be_found'")


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("syntax-error", 1, "SyntaxError: invalid syntax"),
        ("missing-script", 2, "can't open file '/app/train.py': [Errno 2] No such file or directory"),
    ],
)
def test_what_was_printed_last_is_told_where_there_is_no_traceback(name, code, line):
    found = failure(name)
    assert found.exit_code == code
    assert found.traceback.splitlines()[-1].endswith(line)


@pytest.mark.parametrize(
    ("name", "error"),
    [("terminated", "got signal: 15"), ("no-master", "The connection to the C10d store has failed.")],
)
def test_an_error_of_torchrun_itself_is_told(name, error):
    found = failure(name)
    assert (found.rank, found.exit_code) == (None, None)
    assert error in found.traceback.splitlines()[-1]


def test_a_lost_peer_or_master_is_known_as_a_consequence():
    secondary = {path.stem for path in LOGS.iterdir() if failure(path.stem).secondary}
    assert secondary == {"peer-lost", "no-master", "terminated"}


def test_a_script_that_speaks_of_connections_is_no_consequence():
    text = 'Traceback (most recent call last):\n  File "/app/DistNetworkError.py", line 1, in f\n    x\nKeyError: 1'
    assert not Failure(0, 1, text).secondary


def test_the_tail_that_is_read_is_enough():
    for path in LOGS.iterdir():
        long_run = "loss 0.1\n" * 1000 + log(path.stem)
        tail = "\n".join(long_run.splitlines()[-TAIL_LINES:])
        assert failure_of(tail).exit_code == failure(path.stem).exit_code
        assert failure_of(tail).traceback.endswith(failure(path.stem).traceback)


def test_the_end_of_the_log_that_kubelets_keep_has_rank_and_exit_code():
    for path in LOGS.iterdir():
        whole, kept = failure(path.stem), failure_of(log(path.stem)[-2048:])
        # A recorded traceback is part of the summary and can push its beginning out.
        assert (kept.rank, kept.exit_code) == (whole.rank, whole.exit_code)


def test_a_program_that_is_no_torchrun_gives_its_own_traceback():
    text = f"starting\n{KEY_ERROR}\n"
    assert failure_of(text) == Failure(None, None, KEY_ERROR)


def test_only_the_end_of_a_long_traceback_is_kept():
    text = KEY_ERROR.replace("KeyError: 'accuracy'", "KeyError: '" + "x" * 2 * MAX_TRACEBACK + "end'")
    found = failure_of(text).traceback
    assert len(found) == MAX_TRACEBACK
    assert found.endswith("end'")


SUMMARY = "Root Cause (first observed failure):\n"
HOSTILE = {
    "a prefix without an end": lambda size: "[a" + "1" * size,
    "prefixes without an end": lambda size: "[a1" * (size // 3),
    "a rank without an end": lambda size: "[rank" + "9" * size,
    "tracebacks without an end": lambda size: SUMMARY + "  traceback : Traceback \n" * (size // 25),
    "spaces": lambda size: SUMMARY + " " * size,
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_log_of_four_times_the_size_takes_about_four_times_the_time(hostile):
    def seconds(log):
        times = []
        for _ in range(5):
            begun = time.process_time()
            failure_of(log)
            times.append(time.process_time() - begun)
        return min(times)

    assert seconds(hostile(MAX_LOG)) < 10 * seconds(hostile(MAX_LOG // 4))


def test_of_a_log_that_is_too_long_only_the_end_is_read():
    assert failure_of(KEY_ERROR + "\n" * MAX_LOG + "the end").traceback == "the end"


@pytest.mark.parametrize("line", ["  rank      : {}", "  exitcode  : -{}", "[rank{}]: boom"])
def test_a_number_with_too_many_digits_is_none(line: str):
    failure = failure_of(SUMMARY + line.format("9" * 5000))
    assert (failure.rank, failure.exit_code) == (None, None)


pieces = st.sampled_from([line for path in sorted(LOGS.iterdir()) for line in path.read_text().splitlines()])


@given(st.lists(pieces | st.text(max_size=20), max_size=30), st.text(max_size=30))
def test_no_log_makes_it_stumble(lines, rest):
    found = failure_of("\n".join([*lines, rest]))
    assert len(found.traceback) <= MAX_TRACEBACK
    assert found.secondary in (True, False)


LAST = [
    ("exception", "KeyError: 'accuracy'"),
    ("prefixed", "KeyError: 'accuracy'"),
    ("import-error", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
]


@pytest.mark.parametrize(("name", "line"), LAST)
def test_the_last_lines_are_those_before_torchrun_noticed(name, line):
    assert last_lines_of(log(name))[-1] == line


def test_a_killed_process_that_printed_nothing_has_no_lines_of_an_attempt_before():
    assert last_lines_of(log("killed")) == ()


def test_the_line_of_process_1_about_the_group_is_none_of_the_scripts():
    """It is logged by a loop of its own, so it may come after the script's error (146)."""
    said = "elastic-pytorch: torchrun trains here as rank 1 of a group of 2, with rank 0 at 10.244.1.42 port 42129."
    assert last_lines_of(f"hello\nModuleNotFoundError: no\n{said}\n") == ("hello", "ModuleNotFoundError: no")
    assert failure_of(f"no such file\n{said}\n").traceback == "no such file"
    assert last_lines_of(f"90 % {said}\n") == (f"90 % {said}",)


TEE = """\
[default0]:rank 0 prints
[default1]:step 4
[default1]:[rank5]: about to fail
[default0]:rank 0 prints on
[rank4]: not its own
[rank5]: its own
of nobody
E1121 12:35:46.801000 28698 torch/x.py:1002] failed (exitcode: 3) local_rank: 1 (pid: 31006) of binary: /opt/python
Root Cause (first observed failure):
  rank      : 5 (local_rank: 1)
  exitcode  : 3 (pid: 31006)
"""


def test_lines_of_other_ranks_are_left_out_as_far_as_they_have_a_prefix():
    assert last_lines_of(TEE) == ("step 4", "about to fail", "its own", "of nobody")


def test_without_a_summary_the_last_lines_are_the_containers():
    assert last_lines_of("[default0]:a\n\x1b[31mb\x1b[0m\n\n") == ("[default0]:a", "b")
    assert last_lines_of("") == ()
