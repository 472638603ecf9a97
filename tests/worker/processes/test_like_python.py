"""A training process, forked or started anew, is what `python train.py ARGUMENTS` is."""

import json
import os
from pathlib import Path

import pytest

from elastic_worker.processes.environment import EARLY
from elastic_worker.processes.program import COMMAND, MODULE, SCRIPT, Program
from tests.worker.processes.lab import a_lab, natively

DESCRIBE = """
import json, os, signal, sys, threading, warnings
main = sys.modules["__main__"]
parts = {
    "forked": "elastic_worker.processes.zygote" in sys.modules,
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path, "file": __file__, "name": __name__,
    "main": main.__dict__ is globals(), "cwd": os.getcwd(), "spec": __spec__ and __spec__.name, "package": __package__,
    "builtins": type(__builtins__).__name__, "cached": "__cached__" in globals(), "loader": "__loader__" in globals(),
    "environ": {k: v for k, v in os.environ.items() if k not in ("TORCHELASTIC_ERROR_FILE", "ELASTIC_SAVE_FILE", "_")},
    "signals": {n: str(signal.getsignal(n)).split(" at ")[0] for n in signal.valid_signals() if n < 32},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "wakeup": signal.set_wakeup_fd(-1),
    "threads": [t.name for t in threading.enumerate()], "leader": os.getsid(0) == os.getpid() == os.getpgid(0),
    "stdin": os.readlink("/proc/self/fd/0"), "read": sys.stdin.read(), "filters": len(warnings.filters),
    "fds": [os.readlink(f"/proc/self/fd/{n}") for n in range(3, 64) if os.path.exists(f"/proc/self/fd/{n}")],
    "stdout": [sys.stdout.encoding, sys.stdout.errors], "home": os.path.expanduser("~"),
}
open(sys.argv[1], "w").write(json.dumps(parts))
"""
OF_THIS_MACHINE = {name: value for name, value in os.environ.items() if name.startswith(EARLY)}
"""A warm parent forks only for processes with the same values of these; the parent of a test has this machine's."""
HELLO = {**OF_THIS_MACHINE, "PATH": os.defpath, "HOME": "/nowhere", "GREETING": "hällo", "LANG": "C.UTF-8"}


def lay_out(folder: Path) -> None:
    """The same program as a script, a module, a package and a folder; and something on PYTHONPATH."""
    for place in ("train.py", "deep/train.py", "package/__main__.py", "folder/__main__.py", "found/elsewhere.py"):
        path = folder / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(DESCRIBE)
    (folder / "package/__init__.py").touch()
    (folder / "launcher_line.py").symlink_to("deep/train.py")


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (SCRIPT, "train.py"),
        (SCRIPT, "deep/train.py"),
        (SCRIPT, "launcher_line.py"),
        (SCRIPT, "folder"),
        (MODULE, "train"),
        (MODULE, "package"),
        (MODULE, "elsewhere"),
    ],
)
async def test_a_program_sees_what_it_would_see_under_python(tmp_path, kind, target, warm):
    work = tmp_path / "work"
    work.mkdir()
    lay_out(work)
    environ = {**HELLO, "PYTHONPATH": str(work / "found")}
    words = ["-m", target] if kind == MODULE else [target]
    assert natively(*words, "native.json", "--lr", "0.1", folder=work, environ=environ).returncode == 0
    native = json.loads((work / "native.json").read_text())
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        process = await lab.start(Program(kind, target, ("native.json", "--lr", "0.1")), environ=environ)
        assert await process.wait() == 0
    assert json.loads((work / "native.json").read_text()) == {**native, "forked": warm}


ENDINGS = {
    "end": "print('done')",
    "status": "import sys; sys.exit(3)",
    "text": "import sys; sys.exit('no data')",
    "nothing": "import sys; sys.exit()",
    "error": "def f():\n    raise ValueError('no')\nf()",
    "cause": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise OSError('disk') from e",
    "syntax": "def f(:\n    pass",
    "interrupt": "raise KeyboardInterrupt",
    "hard": "import os; os._exit(7)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "atexit": "import atexit, sys; atexit.register(print, 'bye', file=sys.stderr)",
    "thread": "import sys, threading, time\ndef f():\n    time.sleep(0.1)\n    print('late', file=sys.stderr)\n"
    "threading.Thread(target=f).start()",
    "hook": "import sys\ndef hook(kind, error, trace):\n    print('hook', error, trace.tb_lineno, file=sys.stderr)\n"
    "sys.excepthook = hook\nraise ValueError(1)",
    "file": "log = open('log.txt', 'w'); log.write('unflushed')",
}


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
async def test_a_script_ends_as_under_python(tmp_path, capfd, warm):
    work = tmp_path / "work"
    work.mkdir()
    for name, text in ENDINGS.items():
        (work / f"{name}.py").write_text(text + "\n")
    natives = {name: natively(f"{name}.py", folder=work) for name in [*ENDINGS, "missing"]}
    (work / "log.txt").unlink()
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        for name, native in natives.items():
            capfd.readouterr()
            process = await lab.start(Program(SCRIPT, f"{name}.py"))
            assert (name, await process.wait()) == (name, native.returncode)
            assert (name, capfd.readouterr().err) == (name, native.stderr)
    assert (work / "log.txt").read_text() == "unflushed"


async def test_processes_of_one_parent_differ_in_their_random_numbers_and_secrets(tmp_path):
    text = (
        "import multiprocessing, os, random, sys, tempfile\n"
        "parts = random.random(), bytes(multiprocessing.current_process().authkey).hex(), tempfile.mkdtemp()\n"
        "open(sys.argv[1], 'w').write('\\n'.join(map(str, parts)))\n"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    async with a_lab(tmp_path) as lab:
        await lab.until_warm()
        for process in [await lab.start_script(text, name, environ=environ) for name in ("one", "two")]:
            assert await process.wait() == 0
        one, two = ((lab.folder / name).read_text().split() for name in ("one", "two"))
    assert not set(one) & set(two)
    assert Path(one[2]).parent == tmp_path


@pytest.mark.parametrize("warm", [True, False], ids=["forked", "cold"])
async def test_multiprocessing_finds_the_script_again(tmp_path, warm):
    text = (
        "import multiprocessing, sys\n"
        "def square(n):\n    return n * n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:\n"
        "        assert pool.map(square, [1, 2, 3]) == [1, 4, 9]\n"
    )
    async with a_lab(tmp_path, warm=warm) as lab:
        await lab.until_warm()
        for method in ("spawn", "fork", "forkserver"):
            process = await lab.start_script(text, method)
            assert (method, await process.wait()) == (method, 0)


@pytest.mark.parametrize(
    ("words", "code"),
    [(("sh", "-c", "exit 5"), 5), (("no-such-program",), 127), (("/etc/passwd",), 126)],
    ids=["ends", "missing", "not executable"],
)
async def test_a_command_takes_the_place_of_python(tmp_path, words, code):
    async with a_lab(tmp_path) as lab:
        await lab.until_warm()
        process = await lab.start(Program(COMMAND, words[0], words[1:]))
        assert await process.wait() == code


async def test_a_process_is_started_cold_and_the_parent_anew_when_python_must_start_differently(tmp_path):
    text = "import sys; sys.exit(40 + sys.flags.optimize)"
    environ = {**os.environ, "PYTHONOPTIMIZE": "1"}
    async with a_lab(tmp_path) as lab:
        await lab.until_warm()
        before = lab.parent
        assert await (await lab.start_script(text)).wait() == 40
        assert await (await lab.start_script(text, environ=environ)).wait() == 41
        await lab.until_warm(instead_of=before)
        assert await (await lab.start_script(text, environ=environ)).wait() == 41
        assert lab.starter.warm
