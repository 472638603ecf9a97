"""Runs on this machine as data."""

from __future__ import annotations

from pathlib import Path

from elastic_client.convert.run import RunFlags
from elastic_client.local.machine import Machine
from elastic_client.local.plan import Place, plan

FOLDER = Path("/data")


def make_plan(*command, gpus_there=0, checkpoint_path="", **flags):
    """What `run --local FLAGS -- COMMAND` becomes on a machine with so many GPUs."""
    typed = RunFlags(command=command or ("train.py",), **{"name": "toy", "workers": "1:4", **flags})
    machine = Machine("/usr/bin/python3", "2.15.0", tuple(map(str, range(gpus_there))))
    return plan(typed, machine, checkpoint_path=checkpoint_path, ports=(29400, 29401), folder=FOLDER)


def make_place(index=0, *, serial=1, epoch=1):
    """A pod's."""
    return Place(index, serial, epoch, Path("/run/membership"), Path("/run") / str(serial))
