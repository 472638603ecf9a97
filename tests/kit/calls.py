"""Counts work in function calls, because seconds differ from machine to machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType


def calls_of(work: Callable[[], object]) -> int:
    """The number of calls of the operator's functions; each step of a generator is a call.

    No garbage is collected meanwhile: the finalizers of what other tests left behind would count.
    """
    count = 0

    def note(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and "/elastic_operator/" in frame.f_code.co_filename

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
