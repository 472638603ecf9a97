"""What the chart holds a copy of, because helm reads nothing outside of it."""

from tests.chart.rendering import CHART, CRDS


def test_the_chart_holds_a_copy_of_the_generated_definitions():
    generated = {path.name: path.read_text() for path in CRDS.glob("*.yaml")}
    assert generated, "crds/ is empty: run `make crds`"
    copies = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*.yaml")}
    assert copies == generated, "run `make crds`"
