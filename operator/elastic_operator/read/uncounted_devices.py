"""Finds jobs that request devices of dynamic resource allocation (DRA). The operator does not count such devices
yet.

A pod requests them by a claim (KEP-4381), or as an extended resource that a DeviceClass serves (KEP-5004): the class
names the resource, or the resource is named after the class.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from elastic_api.job import JobSpec
from elastic_api.template import requests_of
from elastic_operator.cluster import objects
from elastic_operator.cluster.store import Store
from elastic_operator.plan.facts.text import Reason
from elastic_worker.contract import ROLE_MASTER, ROLE_WORKER

log = logging.getLogger(__name__)

_CODE = "DynamicResourceAllocation"
OF_A_CLASS = "deviceclass.resource.kubernetes.io/"
"""The prefix of an extended resource that is named after a DeviceClass."""
CLAIMS = (
    "Its pods have resourceClaims. Devices that DRA hands out are not counted yet, so no quota holds for them. Ask for"
    " GPUs as an extended resource of a device plugin, such as nvidia.com/gpu in resources.limits."
)
RESOURCE = (
    "{resource} is handed out by DRA (DeviceClass {name}). Such devices are not counted yet: only what nodes have in"
    " status.allocatable is. Serve them by a device plugin."
)


class DeviceRequests(NamedTuple):
    """The requests of a job that DRA may serve: whether its pods have claims, and their extended resources."""

    claims: bool = False
    resources: frozenset[str] = frozenset()


def device_requests_of(spec: JobSpec) -> DeviceRequests:
    """The requests of both roles' templates."""
    templates = [spec.template_of(role) for role in (ROLE_MASTER, ROLE_WORKER)]
    extended = frozenset(name for template in templates for name in requests_of(template) if "/" in name)
    return DeviceRequests(any(template["spec"].get("resourceClaims") for template in templates), extended)


def why_not_counted(asked: DeviceRequests, class_of: Mapping[str, str]) -> Reason | None:
    """The warning for a job that requests such devices; None if all its devices are counted."""
    if asked.claims:
        return Reason(_CODE, CLAIMS)
    for resource in sorted(asked.resources):
        name = class_of.get(resource) or resource.partition(OF_A_CLASS)[2]
        if name:
            return Reason(_CODE, RESOURCE.format(resource=resource, name=name))
    return None


def class_of_resources(classes: Store[objects.DeviceClass]) -> Mapping[str, str]:
    """The extended resources that DeviceClasses serve, with the name of the class."""
    named = ((device.spec.extended_resource_name, device.metadata.name) for device in classes)
    return {resource: name for resource, name in named if resource}


def log_new(class_of: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Log the resources that DeviceClasses serve now and did not serve before."""
    for resource in class_of.keys() - before.keys():
        log.warning("%s", RESOURCE.format(resource=resource, name=class_of[resource]))
