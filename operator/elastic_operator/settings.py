"""The operator's settings: one YAML file, overridden by `ELASTIC_OPERATOR_*` variables; nothing else is configured.

`ELASTIC_OPERATOR_LOGGING__LEVEL=debug` sets `logging.level`; a value is read as YAML, so lists and numbers work.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError
from pydantic.alias_generators import to_camel

from elastic_operator.api.job import ApiModel
from elastic_operator.api.template import GPU_RESOURCES

PREFIX = "ELASTIC_OPERATOR_"
DEFAULT_FILE = Path("/etc/elastic-operator/settings.yaml")


class SettingsError(ValueError):
    """A setting that cannot be used; the message names it, its value and what to write instead."""


class Logging(ApiModel):
    """How the operator logs."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(ApiModel):
    """All settings, with their defaults."""

    gpu_resources: tuple[str, ...] = Field(GPU_RESOURCES, min_length=1)
    watch_namespaces: tuple[str, ...] = ()
    worker_priority_class_name: str = "elastic-pytorch-worker"
    master_priority_class_name: str = "elastic-pytorch-master"
    port: int = Field(8080, ge=0, le=65535, description="Of /healthz, /readyz and /metrics.")
    logging: Logging = Logging()

    def watches(self, namespace: str) -> bool:
        """Whether jobs of that namespace are ours to run."""
        return not self.watch_namespaces or namespace in self.watch_namespaces


def load(environ: Mapping[str, str], file: Path = DEFAULT_FILE) -> Settings:
    """Settings from `file` (absent: defaults) and the environment; SettingsError where one cannot be used."""
    try:
        values = yaml.safe_load(file.read_text()) if file.is_file() else {}
    except yaml.YAMLError as error:
        raise SettingsError(f"{file} is not YAML: {error}") from error
    if not isinstance(values or {}, dict):
        raise SettingsError(f"{file} must hold a mapping of settings, not {type(values).__name__}")
    merged = _overridden(values or {}, environ)
    try:
        return Settings.model_validate(merged)
    except ValidationError as error:
        told = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}, not {e['input']!r}" for e in error.errors())
        raise SettingsError(f"settings of {file} and {PREFIX}*: {told}") from error


def _overridden(values: dict[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    merged = dict(values)
    for name, text in environ.items():
        if not name.startswith(PREFIX) or not text:
            continue
        path = [to_camel(part.lower()) for part in name.removeprefix(PREFIX).split("__")]
        target = merged
        for part in path[:-1]:
            target[part] = dict(target.get(part) or {})
            target = target[part]
        target[path[-1]] = yaml.safe_load(text)
    return merged
