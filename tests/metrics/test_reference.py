"""docs/metrics.md tells of every metric, as it is."""

from generate import metrics_reference


def test_every_metric_says_what_it_is():
    for family in metrics_reference.families():
        assert family.type != "unknown", family.name
        assert family.documentation.endswith("."), family.name
        assert family.samples, family.name
