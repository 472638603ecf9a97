"""The part of Grafana's dashboard JSON that ours needs: panels in rows, each with a question that it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

COLUMNS = 24
HEIGHT = 8
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and what its series are called: `{{label}}` stands for a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    `question` is what it answers. `kind` is timeseries, stat (the newest value) or names (the newest series' names).
    `unit` is Grafana's: short, s, percentunit, reqps, bytes.
    """

    title: str
    question: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    unit: str = "short"
    stacked: bool = False
    width: int = 8


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice above the dashboard, filled by a query for label values."""

    name: str
    query: str


def dashboard(*, uid: str, title: str, variables: Sequence[Variable], rows: Sequence[Row]) -> dict[str, Any]:
    """The JSON model of a dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        heading = {"x": 0, "y": top, "w": COLUMNS, "h": 1}
        panels.append({"type": "row", "title": row.title, "collapsed": False, "gridPos": heading, "panels": []})
        top += 1
        left = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top = 0, top + HEIGHT
            panels.append(_panel(panel) | {"gridPos": {"x": left, "y": top, "w": panel.width, "h": HEIGHT}})
            left += panel.width
        top += HEIGHT
    return {
        "uid": uid,
        "title": title,
        "tags": ["elastic-pytorch"],
        "schemaVersion": 38,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), *map(_variable, variables)]},
        "annotations": {"list": []},
        "panels": [panel | {"id": number} for number, panel in enumerate(panels, start=1)],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    instant = panel.kind != "timeseries"
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend,
            "instant": instant,
            "range": not instant,
        }
        for number, query in enumerate(panel.queries)
    ]
    return {
        "type": "stat" if instant else panel.kind,
        "title": panel.title,
        "description": panel.question,
        "datasource": DATASOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, **_style(panel)}, "overrides": []},
        "options": _options(panel),
    }


def _style(panel: Panel) -> dict[str, Any]:
    if panel.kind != "timeseries":
        return {}
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    return {
        "min": 0,
        "custom": {"fillOpacity": 30 if panel.stacked else 0, "stacking": stacking, "showPoints": "never"},
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "timeseries":
        return {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull"], "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "name" if panel.kind == "names" else "value_and_name",
        "colorMode": "none",
        "graphMode": "none",
    }


def _datasource() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "hide": 0}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "type": "query",
        "name": variable.name,
        "datasource": DATASOURCE,
        "query": {"query": variable.query, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "hide": 0,
    }
