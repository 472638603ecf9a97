"""The comparison under other assumptions. In `CONTROL` no job can change its size, so a policy that is better there
has an unfair model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.policy.model import Assumptions, Mode

BASE = Assumptions()
CONTROL = replace(BASE, elastic=0.0)


@dataclass(frozen=True, slots=True)
class Variant:
    """One changed assumption."""

    title: str
    assumed: Assumptions


VARIANTS = {
    "library": Variant("all elastic jobs use the library", replace(BASE, modes=(Mode.LIBRARY,))),
    "elastic": Variant(
        "all are plain scripts in Elastic mode, and save when asked", replace(BASE, modes=(Mode.ELASTIC,))
    ),
    "deaf": Variant("the same, but they do not", replace(BASE, modes=(Mode.ELASTIC,), listens=False)),
    "torchrun": Variant("all run in Torchrun mode", replace(BASE, modes=(Mode.TORCHRUN,))),
    "patient": Variant(
        "all run in Torchrun mode, and set `scaleUpDelaySeconds: 3600`",
        replace(BASE, modes=(Mode.TORCHRUN,), torchrun_delay=3600),
    ),
    "often": Variant("a checkpoint every 5 minutes, not 20", replace(BASE, checkpoint_seconds=300.0)),
    "seldom": Variant("a checkpoint every hour", replace(BASE, checkpoint_seconds=3600.0)),
    "start": Variant("two minutes to start a pod, not 20 s", replace(BASE, start_seconds=120.0)),
    "modest": Variant("elastic jobs grow no larger than a fixed one would be", replace(BASE, most=1.0)),
}
