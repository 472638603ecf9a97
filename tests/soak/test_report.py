"""The picture and the page's section, made of a small result."""

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict

from tests.soak import report, results
from tests.soak.plot import svg_of
from tests.soak.records import Change, Verdict
from tests.soak.results import Event, Result
from tests.soak.watch import Sample
from tests.soak.weight import Weight, judge

WEIGHTS = [Weight(float(s), "1", 80.0, 30) for s in range(0, 600, 10)]


def make_result(seed=1, **fields):
    gpus = {"red": 3, "free": 2, "north": 2, "south": 1, "guests": 0}
    defaults = {
        "seed": seed,
        "minutes": 10,
        "began": 1000.0,
        "rests": 7,
        "events": [
            Event(10.0, 15.0, "fault", "worker deleted", "north: worker-0 is deleted"),
            Event(70.0, 75.0, "fault", "node <switched> off", "n1 is switched off"),
            Event(20.0, 20.0, "policy", "policy edited", "policy red is edited"),
        ],
        "samples": [Sample(float(s), 21 + s % 3, gpus, {"north": 2, "south": 1 + s % 2}) for s in range(0, 600, 5)],
        "weights": WEIGHTS,
        "trainings": {
            "north": Verdict(
                9, (Change(1011.0, (1, 1), (1, 2), 0, 0.4), Change(1080.0, (1, 2), (2, 1), 4, 12.5)), 12.5, ()
            ),
            "south": Verdict(8, (), 0.3, ()),
        },
        "flatness": judge(WEIGHTS),
    }
    return Result(**{**defaults, **fields})


def test_a_result_is_the_same_after_it_was_kept():
    result = make_result()
    assert results.load(json.loads(json.dumps(asdict(result)))) == result


def test_figures_count_lost_work_and_live_processes():
    told = dict(results.figures(make_result()))
    assert told["steps done again, all after faults"] == "4 + 0"
    assert told["of these without any loss"] == "1 + 0"
    assert told["fewest jobs alive at any moment"] == "21"
    assert told["what broke"] == "nothing"
    assert dict(results.figures(make_result(wrong=["a rule"])))["what broke"] == "1"


def test_each_change_of_group_is_the_latest_faults():
    result = make_result()
    first, second = result.of("fault")
    assert [change.lost for change in result.changes_in(first)] == [0]
    assert [change.lost for change in result.changes_in(second)] == [4]


def test_the_picture_shows_teams_trainings_faults_and_memory():
    drawn = svg_of(make_result())
    ET.fromstring(drawn)
    for words in ("red", "guests", "processes that train", "node &lt;switched&gt; off", "memory", "5 min", "80 MB"):
        assert words in drawn
    assert drawn.count("<polygon") == 5
    assert "nan" not in drawn


def test_a_run_that_broke_at_once_can_be_drawn():
    ET.fromstring(svg_of(Result(seed=1, minutes=30)))


def test_the_section_has_a_column_for_each_seed_and_a_row_for_each_fault():
    text = report.section([make_result(1), make_result(22)])
    assert "| seed | 1 | 22 |" in text
    assert "| worker deleted | 2 | nothing | 2 | 0 | 0.4 s |" in text


def test_the_section_replaces_only_the_text_between_the_marks():
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    once = report.put_in(page, "new\n")
    assert once == f"before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    assert report.put_in(once, "new\n") == once
    assert report.put_in("a page without marks\n", "new\n") == "a page without marks\n"
