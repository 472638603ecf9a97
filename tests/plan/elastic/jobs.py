"""Builders of Elastic jobs, beside those of `tests/plan/jobs.py`."""

import json
from dataclasses import replace

from elastic_operator.plan.facts.job import MainContainer
from tests.plan.jobs import at, make_job, make_pod, make_spec, make_status


def make_elastic_spec(**fields):
    return make_spec(runtime={"mode": "Elastic"}, **fields)


def make_membership(*names, number=1, fewest=2, most=4, **more):
    """An annotation that names these pods."""
    members = [{"name": f"toy-{name}", "uid": f"uid-{name}"} for name in names]
    return json.dumps({"wish": number, "members": members, "min": fewest, "max": most, **more})


def make_master(**fields):
    return make_pod("master-0", **{"nnodes": None, "master_epoch": 1, "membership": "", **fields})


def make_worker(index=0, **fields):
    return make_pod(f"worker-{index}", **{"nnodes": None, **fields})


def make_group(workers=1, **master):
    """A master and its workers; the master was told of them all."""
    names = ["master-0", *(f"worker-{i}" for i in range(workers))]
    return (make_master(**{"membership": make_membership(*names), **master}), *(make_worker(i) for i in range(workers)))


def make_elastic_job(pods, /, *, spec=None, workers=None, last=None, **status):
    """A job whose last status knew of so many workers, by default of those that are there, and of a master.

    Or whose last status is `last`.
    """
    count = 1 + (len([pod for pod in pods if pod.role == "worker"]) if workers is None else workers)
    known = {"replicas": count, "target_replicas": count, "running_since": at(5), "master_epoch": 1, **status}
    return make_job(pods, spec=spec or make_elastic_spec(), status=last or make_status(**known))


def is_pending(pod, **fields):
    """The pod before its containers run."""

    return replace(pod, phase="Pending", ready=False, main=MainContainer(), **fields)
