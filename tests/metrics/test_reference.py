"""docs/metrics.md tells of every metric, as it is."""

from pathlib import Path

from generate import metrics_reference

ROOT = Path(__file__).parents[2]


def test_the_page_is_current():
    shown = (ROOT / metrics_reference.PATH).read_text()
    assert shown == metrics_reference.text(), f"{metrics_reference.PATH} is not current: run `make generated`"


def test_every_metric_says_what_it_is():
    for family in metrics_reference.families():
        assert family.type != "unknown", family.name
        assert family.documentation.endswith("."), family.name
        assert family.samples, family.name
