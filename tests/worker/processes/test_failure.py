"""Why a training process failed reaches the launcher."""

import json

import pytest

from elastic_worker.processes import failure
from elastic_worker.processes.program import SCRIPT, Program
from tests.worker.processes.lab import a_lab


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
async def test_an_uncaught_exception_is_told(tmp_path, warm):
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        process = await lab.start_script("def train():\n    raise ValueError('NaN in the loss')\ntrain()\n")
        assert await process.wait() == 1
        assert process.error["message"] == "ValueError: NaN in the loss"
        assert process.error["exitCode"] == 1
        lines = process.error["traceback"].splitlines()
        assert lines[1].strip() == f'File "{lab.folder}/train.py", line 3, in <module>'
        assert lines[-1] == "ValueError: NaN in the loss"


async def test_what_the_script_has_written_itself_is_kept(tmp_path):
    text = (
        "import json, os\nmessage = {'message': 'Root: cause', 'extraInfo': {'py_callstack': 'where'}}\n"
        "json.dump({'message': message}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))\nraise ValueError('later')\n"
    )
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(text)
        await process.wait()
        assert process.error == {"message": "Root: cause", "traceback": "where", "exitCode": 1}


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
async def test_the_words_of_a_script_that_ends_with_some_are_told(tmp_path, warm):
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        process = await lab.start_script("import sys\nsys.exit('there is no data set in /data')")
        assert await process.wait() == 1
        assert process.error["message"] == "there is no data set in /data"


async def test_a_script_that_is_not_there_is_told(tmp_path):
    async with a_lab(tmp_path) as lab:
        process = await lab.start(Program(SCRIPT, str(lab.folder / "missing.py")))
        assert await process.wait() == 2
        assert "can't open file" in process.error["message"]
        assert "missing.py" in process.error["message"]


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "import os; os.abort()", "pass"])
async def test_a_process_that_leaves_no_word_has_no_error(tmp_path, text):
    async with a_lab(tmp_path) as lab:
        process = await lab.start_script(text)
        await process.wait()
        assert process.error is None


async def test_of_a_long_error_the_end_is_kept(tmp_path):
    path = tmp_path / "error"
    failure.write({failure.ENV_ERROR_FILE: str(path)}, ValueError("x" * 50_000 + " the reason"))
    assert path.stat().st_size <= 16_384
    error = failure.read(path, exit_code=1)
    assert error["message"].endswith(" the reason")
    assert error["traceback"].endswith(" the reason\n")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"message": null}', '{"message": {"extraInfo": 1}}'])
def test_any_file_can_be_read(tmp_path, text):
    path = tmp_path / "error"
    path.write_text(text)
    error = failure.read(path, exit_code=1)
    assert error is None or json.dumps(error)


def test_a_full_disk_does_not_hide_the_error(capfd):
    failure.write({failure.ENV_ERROR_FILE: "/dev/full/error"}, ValueError("no"))
    assert "no error file" in capfd.readouterr().err
