"""The command `kubectl elastic`, also `elastic`: all its commands, and how each of them ends.

Any error that a user can cause ends with one line on stderr and an exit code of `exits.Code`, never with a traceback.
"""

from __future__ import annotations

import os
import sys

import typer
from typer.exceptions import Abort, TyperException

from elastic_client import stops
from elastic_client.command import all_placed, on_cluster, placed, remember_place
from elastic_client.commands import (
    change,
    completion,
    doctor,
    events,
    logs,
    look,
    quota,
    quota_set,
    restart,
    submit,
    top,
    wait,
    when,
)
from elastic_client.convert import commands as convert
from elastic_client.exits import ClientError, Code, epilog
from elastic_client.local.command import add_local, or_local
from elastic_client.words import printable

app = typer.Typer(
    name="elastic",
    help="Submit, watch, explain and change elastic PyTorch jobs.",
    epilog=epilog(),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    callback=remember_place,
    context_settings={"help_option_names": ["-h", "--help"]},
)
quotas = typer.Typer(help="Quotas of GPUs: what teams are guaranteed, use, borrow and lend.", no_args_is_help=True)

app.command("list")(on_cluster(look.list_jobs))
app.command("describe")(on_cluster(look.describe))
app.command("why")(on_cluster(look.why))
app.command("logs")(on_cluster(logs.logs))
app.command("events")(on_cluster(events.events))
app.command("wait")(on_cluster(wait.wait))
app.command("top")(on_cluster(top.top))
app.command("scale")(or_local(on_cluster(change.scale)))
app.command("suspend")(on_cluster(change.suspend))
app.command("resume")(on_cluster(change.resume))
app.command("restart")(on_cluster(restart.restart))
app.command("delete")(on_cluster(change.delete))
quotas.command("list")(on_cluster(quota.list_quotas))
quotas.command("describe")(on_cluster(quota.describe_quota))
quotas.command("set")(placed(quota_set.set_quota))
app.add_typer(quotas, name="quota")
app.command("doctor")(on_cluster(doctor.doctor))
app.command("completion")(completion.completion)

runs = typer.Typer()
convert.add_run(runs, submit.submit)
when.add_when(runs)
add_local(runs)
app.add_typer(all_placed(runs))
app.add_typer(convert.import_app, name="import")
app.add_typer(all_placed(convert.make_export_app(submit.read_job)), name="export")


def main() -> None:
    """Run the command of `sys.argv` and exit with its code."""
    try:
        with stops.handled():
            completion.prepare()
            sys.exit(_run())
    except ClientError as error:
        _end(error.code, str(error))
    except TyperException as error:
        if message := error.format_message():
            _end(Code.USAGE, f"{message.rstrip('.')}; see --help")
        sys.exit(Code.DONE)  # without a command, the help was printed
    except (KeyboardInterrupt, Abort):
        sys.exit(Code.INTERRUPTED)
    except Exception as error:
        if "ELASTIC_DEBUG" in os.environ:
            raise
        _end(Code.DEFECT, f"{type(error).__name__}: {error}; this was not foreseen: set ELASTIC_DEBUG=1 and report it")


def _run() -> int:
    """The exit code of the command that `sys.argv` names: a wait's, a check's, or 0."""
    try:
        code: int = app(standalone_mode=False, prog_name=completion.PROGRAM) or Code.DONE
        sys.stdout.flush()
    except BrokenPipeError:
        # Buffered output would be written at the end of the process, and would raise the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Code.UNREAD
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer exits with 1 for it, which means that a job failed
            return Code.UNREAD
        raise
    return code


def _end(code: Code, message: str) -> None:
    sys.stderr.write(f"elastic: {' '.join(printable(message).split())}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
