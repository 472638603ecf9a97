"""Random sequences of what scripts do to files: what is told as complete is whole, and nothing complete is missed."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_worker.checkpoint.finder import Finder
from elastic_worker.checkpoint.integrity import is_whole
from tests.worker.checkpoint.writing import settled, watching, zip_bytes

WHOLE, TORN = zip_bytes(), zip_bytes()[:-10]
DEEDS = st.sampled_from(
    ["write", "tear", "move in", "move torn in", "delete", "move away", "touch other", "make folder"]
)


def do(deed, path):
    """One deed of a script that saves at `path`; whether a whole checkpoint came to be there."""
    other = path.with_name("other.tmp")
    if deed in ("write", "tear"):
        path.write_bytes(WHOLE if deed == "write" else TORN)
    elif deed in ("move in", "move torn in"):
        other.write_bytes(WHOLE if deed == "move in" else TORN)
        other.rename(path)
    elif deed == "delete":
        path.unlink(missing_ok=True)
    elif deed == "move away" and path.exists():
        path.rename(path.with_name("old.pt"))
    elif deed == "touch other":
        path.with_name("log.txt").write_text("a line")
    elif deed == "make folder":
        (path.parent / "more").mkdir(exist_ok=True)
    return deed in ("write", "move in")


@given(st.lists(DEEDS, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_file_is_complete_after_each_deed_that_completes_it(deeds):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ckpt.pt"
        finder = Finder(path, lambda: [])
        try:
            for deed in deeds:
                expected = do(deed, path)
                assert finder.find(finder.read()[0]) is expected, deed
                assert not expected or finder.verify()
        finally:
            finder.close()


@given(st.lists(DEEDS, max_size=10), st.booleans())
@settings(max_examples=20, deadline=None)
def test_however_deeds_come_together_the_last_state_is_told(deeds, replace_folder):
    async def run():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs" / "ckpt.pt"
            async with watching(path) as watch:
                path.parent.mkdir()
                for deed in deeds:
                    do(deed, path)
                if replace_folder:
                    path.parent.rename(Path(folder) / "old")
                    path.parent.mkdir()
                    path.write_bytes(WHOLE)
                await settled(watch, seconds=0.05)
                is_there = path.exists() and bool(is_whole(path))
                assert watch.verify() is is_there
                assert not is_there or watch.completed >= 1

    asyncio.run(run())
