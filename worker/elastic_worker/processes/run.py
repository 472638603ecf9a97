"""Turns a newly started or forked process into one like `python train.py ARGUMENTS`.

`become` is the last call of a process. It raises the exception that ends the program, and the interpreter finishes by
its usual rules: exit code, atexit, joining of threads.
"""

from __future__ import annotations

import faulthandler
import io
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from . import after_fork, failure, linux, program, quiesce, saving, steps, store
from .ticket import Ticket

_RUN_AS_MAIN: Callable[..., Any] = runpy._run_module_as_main  # type: ignore[attr-defined]
"""The function that python calls for `-m`. Its second argument: whether to set sys.argv[0] to the file."""


def become(ticket: Ticket, *, forked: bool) -> None:
    """Run the ticket's program. Returns at the end of a script or module; raises what the script raises."""
    if forked:
        after_fork.renew(ticket.environ, directory=ticket.directory)
    else:
        os.chdir(ticket.directory)
    kind, target, args = ticket.program
    if kind == program.COMMAND:
        _execute(target, args)
    if kind == program.STORE:
        store.serve()
    _prepare(ticket)
    run = _run_module if kind == program.MODULE else _run_script
    try:
        run(target, args)
    except SystemExit as end:
        if isinstance(end.code, str):
            failure.write_message(os.environ, end.code)
        raise
    except BaseException:
        failure.install_hook()
        raise


def _execute(target: str, args: tuple[str, ...]) -> NoReturn:
    """Replace this process by a command. Ends with a shell's code if that fails: 127 (not found) or 126."""
    try:
        os.execvpe(target, [target, *args], os.environ)
    except OSError as error:
        print(f"{target}: {error.strerror}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _prepare(ticket: Ticket) -> None:
    """Add to a plain process: stacks on demand, line buffering, the count of steps, the wait of `quiesce`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    faulthandler.enable()
    faulthandler.register(linux.DUMP_SIGNAL, all_threads=True)
    quiesce.install()
    if ticket.steps_file:
        steps.install(ticket.steps_file, saving.CheckpointRequest(ticket.environ))


def _run_script(target: str, args: tuple[str, ...]) -> None:
    sys.argv[:] = [target, *args]
    _set_orig_argv([sys.executable, target, *args])
    main = _fresh_main()
    if Path(target).is_dir() or not _is_source(target):
        _run_folder(target)
        return
    _add_to_search_path(str(Path(target).resolve().parent))
    main.__file__ = str(Path(target).absolute())
    main.__dict__["__cached__"] = None
    exec(_compile(main.__file__), main.__dict__)


def _run_module(target: str, args: tuple[str, ...]) -> None:
    sys.argv[:] = ["-m", *args]
    _set_orig_argv([sys.executable, "-m", target, *args])
    _fresh_main()
    _add_to_search_path(str(Path.cwd()))
    _RUN_AS_MAIN(target)


def _run_folder(target: str) -> None:
    """Run a folder or an archive with a __main__.py."""
    sys.path.insert(0, str(Path(target).absolute()))
    _RUN_AS_MAIN("__main__", False)


def _fresh_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    return main


def _is_source(target: str) -> bool:
    """Whether python would read the file as a script rather than as an archive."""
    with suppress(OSError), Path(target).open("rb") as file:
        return not file.read(4).startswith(b"PK\x03\x04")
    return True


def _compile(path: str) -> CodeType:
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        problem = f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: {problem}", file=sys.stderr)
        failure.write_message(os.environ, problem)
        raise SystemExit(2) from None
    return compile(source, path, "exec", dont_inherit=True)


def _add_to_search_path(folder: str) -> None:
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, folder)


def _set_orig_argv(argv: list[str]) -> None:
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = argv
