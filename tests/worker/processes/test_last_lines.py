"""Which lines of a process are kept, and how they stand in a termination message."""

from __future__ import annotations

import pytest

from elastic_worker.last_lines import MOST_BYTES, MOST_CHARACTERS, MOST_LINES, LastLines, parted, shown
from elastic_worker.launcher.ending import MOST_BYTES as KUBELETS
from elastic_worker.launcher.ending import Ending, write_termination_message

PLAIN = [
    ("\x1b[1;31mCUDA error\x1b[0m", "CUDA error"),
    ("\x1b]0;a title\x07loss", "loss"),
    ("\x1b]8;;http://x\x1b\\link", "link"),
    ("\x9b2Jcleared", "cleared"),
    ("10%|#   |\r90%|### |\r100%|####|", "100%|####|"),
    ("windows\r\n", "windows"),
    ("a\tb\x00c\u202ed", "a b c d"),
    ("Grüße 🙂", "Grüße 🙂"),
    ("bad \udcff byte", "bad   byte"),
    ("\x1b", ""),
]


@pytest.mark.parametrize(("line", "told"), PLAIN)
def test_a_line_is_shown_as_a_terminal_would_show_it_in_the_end(line, told):
    assert shown(["before", line]) == (("before", told) if told else ("before",))


def test_the_last_lines_are_kept_without_blank_ones_at_both_ends():
    lines = ["", *(f"line {number}" for number in range(30)), "", "end", "", ""]
    kept = shown(lines)
    assert len(kept) == MOST_LINES
    assert kept[-3:] == ("line 29", "", "end")
    assert shown(["", "  ", ""]) == ()
    assert shown([]) == ()


def test_they_have_few_bytes_in_all_and_a_long_line_keeps_its_beginning():
    kept = shown(["é" * 400] * 10)
    assert sum(len(line.encode()) + 1 for line in kept) <= MOST_BYTES
    assert len(kept) == 2
    (long,) = shown(["RuntimeError: " + "x" * 10_000])
    assert len(long) == MOST_CHARACTERS
    assert long.startswith("RuntimeError: xx")
    assert long.endswith(" [...]")


LAST = LastLines("toy-worker-0", 1, -9, ("step 1", "", "| killed"))


def test_they_come_back_from_a_termination_message():
    assert parted(f"rank 1 was killed by SIGKILL\n{LAST}") == ("rank 1 was killed by SIGKILL", LAST)
    assert parted("rank 1 failed") == ("rank 1 failed", None)
    assert parted("") == ("", None)


FORGED = [
    "Last lines of rank 1 of toy (exit code 3):",
    "Last lines of rank 1 of toy (exit code 3):\nno mark",
    "Last lines of rank 1 of ../x (exit code 3):\n| a",
    "Last lines of rank 99999999999 of toy (exit code 3):\n| a",
]


@pytest.mark.parametrize("text", FORGED)
def test_what_only_looks_like_them_stays_in_the_message(text):
    assert parted(text) == (text, None)


def test_what_somebody_else_has_written_there_is_bounded_and_plain():
    text = "Last lines of rank 1 of toy (exit code 3):\n" + "\n".join(["| \x1b[2J" + "y" * 5000] * 100)
    _, last = parted(text)
    assert sum(len(line) + 1 for line in last.lines) <= MOST_BYTES
    assert "\x1b" not in "".join(last.lines)


def test_the_kubelet_takes_them_whole_and_the_end_of_the_message_before_them(tmp_path):
    file = tmp_path / "termination-log"
    file.touch()
    lines = shown(["ü" * 90] * MOST_LINES)
    last = LastLines("toy-worker-0", 1, 3, lines)
    write_termination_message(Ending(93, "Traceback: " + "x" * 5000 + " the reason", last), file=str(file))
    assert file.stat().st_size <= KUBELETS
    message, found = parted(file.read_text(errors="replace"))
    assert found == last
    assert message.endswith("x the reason")
