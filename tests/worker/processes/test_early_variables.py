"""Variables that torch reads when it is imported: a launch script exports them, and the warm parent must have them."""

import os

import pytest

from elastic_worker.processes.parent import GIVE_UP_AFTER
from elastic_worker.processes.starter import TORCH_MODULES
from tests.worker.job.pod import FAKE, torch_environment
from tests.worker.processes.lab import a_lab, until

pytestmark = pytest.mark.programs

EXPORTED = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
IS_WARM = "import sys; sys.exit('elastic_worker.processes.zygote' not in sys.modules)"


@pytest.fixture(autouse=True)
def fake_torch(monkeypatch):
    for name, value in torch_environment(FAKE).items():
        monkeypatch.setenv(name, value)


async def test_a_store_is_forked_from_the_parent_that_the_scripts_need(tmp_path):
    """It needs none of them: if it had the parent of its own, each would end the other's at every change of size."""
    async with a_lab(tmp_path, modules=TORCH_MODULES) as lab:
        await lab.until_warm()
        environ = {**os.environ, **EXPORTED}
        first = lab.parent
        assert await (await lab.start_script(IS_WARM, environ=environ)).wait() == 1, "started cold"
        await lab.until_warm(instead_of=first)
        theirs = lab.parent
        store = await lab.starter.start_store()
        assert await (await lab.start_script(IS_WARM, environ=environ)).wait() == 0
        assert lab.parent is theirs
        await store.process.stop(0)


async def test_a_parent_is_made_anew_as_soon_as_the_variables_are_known(tmp_path):
    async with a_lab(tmp_path, modules=TORCH_MODULES) as lab:
        await lab.until_warm()
        first, environ = lab.parent, {**os.environ, **EXPORTED}
        lab.starter.expect(environ)
        assert not lab.starter.warm
        await lab.until_warm(instead_of=first)
        theirs = lab.parent
        lab.starter.expect({**environ, "LR": "0.1"})
        assert lab.starter.warm
        assert await (await lab.start_script(IS_WARM, environ=environ)).wait() == 0
        assert lab.parent is theirs


async def test_parents_that_are_replaced_before_they_are_ready_are_no_failures(tmp_path):
    """The last one is there in the time that one takes, however often the environment changed before."""
    async with a_lab(tmp_path, modules=TORCH_MODULES) as lab:
        for number in range(2 * GIVE_UP_AFTER):
            await until(lambda: lab.starter._parent.process is not None)
            before = lab.parent
            lab.starter.expect({**os.environ, "PYTORCH_CUDA_ALLOC_CONF": str(number)})
            await before.wait()
            await until(lambda before=before: lab.parent is not before)
        await lab.until_warm()
        assert lab.starter.problem == ""
