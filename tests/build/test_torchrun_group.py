"""How the line is read in which process 1 says which group torchrun has put the pod into."""

import pytest

from elastic_operator.build.torchrun_group import GroupRank, last_rank
from tests.build.groups import says

FIRST, SECOND = says(1, 3), says(0, 2, port=40_001)


@pytest.mark.parametrize(
    ("log", "place"),
    [
        (f"{FIRST}\n", GroupRank(1, 3, "10.0.0.1 port 40000")),
        (f"{FIRST}\nstep 1\n{SECOND}\nstep 2\n", GroupRank(0, 2, "10.0.0.1 port 40001")),
        (f" 50%|####  | 1/2\r {FIRST}\nstep", GroupRank(1, 3, "10.0.0.1 port 40000")),
        (f"{FIRST}\r\n", GroupRank(1, 3, "10.0.0.1 port 40000")),
        (FIRST.replace("10.0.0.1", "fd00::1"), GroupRank(1, 3, "fd00::1 port 40000")),
        ("step 1\n", None),
        ("", None),
        (FIRST[:-10], None),
        (FIRST.replace(" 3,", f" {'9' * 5000},"), None),
        (FIRST.replace("rank 1", "rank "), None),
    ],
    ids=[
        "one",
        "two",
        "a progress bar before it",
        "a terminal",
        "IPv6",
        "none",
        "nothing",
        "cut",
        "too many",
        "no rank",
    ],
)
def test_the_last_place_that_a_log_tells_of_is_the_pods(log, place):
    assert last_rank(log) == place
