"""The commands: manifests on standard output, the rest on standard error, one line for a wrong call."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from elastic_client.__main__ import main
from elastic_client.convert import commands
from elastic_client.exits import ClientError, Code
from tests.docs.pages import REPOSITORY, blocks

TOY = str(REPOSITORY / "examples" / "toy" / "job.yaml")
SCRIPT = str(REPOSITORY / "examples" / "slurm" / "sbatch_run.sh")
SIMPLE = str(REPOSITORY / "tests" / "client" / "convert" / "pytorchjobs" / "simple.yaml")
NCCL = str(REPOSITORY / "tests" / "client" / "convert" / "pytorchjobs" / "mnist-nccl.yaml")
RUNAI = shlex.split("submit-dist pytorch --name X --workers=3 --max-replicas 4 --min-replicas 2 -g 1 -i IMAGE")
SIZE = "minReplicas and maxReplicas count the master"


def make_app():
    """An app like the client's, and what it was asked to make."""
    app, made = typer.Typer(), []
    app.add_typer(commands.import_app, name="import")
    jobs = {"toy": yaml.safe_load((REPOSITORY / "examples" / "toy" / "job.yaml").read_text())}
    app.add_typer(commands.make_export_app(jobs.__getitem__), name="export")
    commands.add_run(app, lambda job, after: made.append((job, after)))
    return app, made


def call(*words, stdin=None):
    app, made = make_app()
    return CliRunner().invoke(app, list(words), input=stdin), made


PRINTS = [
    (["run", "-i", "i", "--workers", "2:8", "-g", "1", "--dry-run", "--", "python", "train.py"], "  maxReplicas: 8\n"),
    (["run", "-i", "i", "--dry-run", "--rdzv_backend", "c10d", "t.py", "--name", "x"], "        - --name\n"),
    (["submit-dist", *RUNAI[1:], "--dry-run", "--", "bash", "-c", "x -- y"], "        - x -- y\n"),
    (["import", "runai", "runai", *RUNAI, "--image-command", "python t.py"], "  minReplicas: 2\n"),
    (["import", "sbatch", "-f", SCRIPT, "-i", "i"], "        - multinode_torchrun.py\n"),
    (["import", "sbatch", "-f", SCRIPT, "-i", "i", "--", "--lr", "1"], "        - --lr\n"),
    (["import", "pytorchjob", "-f", SIMPLE], "kind: ElasticPyTorchJob\n"),
    (["import", "pytorchjob", "-f", NCCL, "--entrypoint", "python t.py"], "        - --backend\n"),
    (["export", "sbatch", "-f", TOY], "#SBATCH --nodes=1-3\n"),
    (["export", "torchrun", "toy", "--nodes", "2", "--host", "h"], "# machine 2\n"),
    (["export", "torchrun", "toy", "--standalone"], "torchrun --standalone"),
    (["export", "yaml", "toy"], "kind: ElasticPyTorchJob\n"),
    (["import", "pytorchjob", "-f", SIMPLE, "-n", "team-a"], "  namespace: team-a\n"),
    (["import", "sbatch", "-f", SCRIPT, "-i", "i", "-n", "team-a"], "  namespace: team-a\n"),
    (["import", "runai", "-n", "team-a", *RUNAI, "--", "t.py", "-n", "3"], "  namespace: team-a\n"),
    (["import", "runai", *RUNAI, "--namespace=team-a", "--", "t.py", "-n", "3"], "        - '-n'\n"),
]


@pytest.mark.parametrize(("words", "text"), PRINTS)
def test_a_command_prints_what_it_made(words, text):
    result, made = call(*words)
    assert (result.exit_code, made) == (0, [])
    assert text in result.stdout
    if words[0] != "export":
        assert SIZE in result.stderr
        assert SIZE not in result.stdout


PLACED = [
    ["-n", "team-a", "run", "--dry-run", "-i", "i", "t.py"],
    ["run", "--dry-run", "-n", "team-a", "-i", "i", "t.py"],
    ["submit-dist", *RUNAI[1:], "-n", "team-a", "--context", "prod", "--dry-run", "--", "t.py"],
    ["-n", "team-a", "import", "runai", *RUNAI, "--", "t.py"],
    ["export", "yaml", "-f", TOY, "-n", "team-a"],
]


@pytest.mark.parametrize("words", PLACED)
def test_the_client_writes_the_namespace_that_it_is_told(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["elastic", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert (ended.value.code, yaml.safe_load(told.out)["metadata"]["namespace"]) == (0, "team-a"), told.err
    assert "team-a" not in told.err
    assert "prod" not in told.err


def test_a_line_of_run_ai_is_for_the_cluster_that_it_names(monkeypatch, capsys):
    words = ["submit-dist", *RUNAI[1:], "--kubeconfig", "/nowhere/at-all", "--", "t.py"]
    monkeypatch.setattr(sys, "argv", ["elastic", *words])
    with pytest.raises(SystemExit):
        main()
    assert "/nowhere/at-all" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", [["submit-dist", "pytorch", "--help"], ["import", "runai", "submit", "-h"]])
def test_a_line_of_run_ai_that_asks_for_help_gets_it(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["elastic", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "Usage: " in capsys.readouterr().out


def test_what_is_said_has_no_control_characters_and_what_is_printed_keeps_them(tmp_path):
    body = yaml.safe_load(Path(TOY).read_text())
    main = body["spec"]["template"]["spec"]["containers"][0]
    main["env"] = [{"name": "COLOUR", "value": "\x1b[31m\x9b"}]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(body))
    result, _ = call("export", "sbatch", "-f", str(tmp_path / "job.yaml"))
    assert r"export COLOUR=$'\x1b[31m\xc2\x9b'" in result.stdout
    result, _ = call("export", "yaml", "-f", str(tmp_path / "job.yaml"))
    assert yaml.safe_load(result.stdout)["spec"] == body["spec"]
    result, _ = call("import", "runai", *RUNAI, "--\x1b[31m=1", "--", "t.py")
    assert result.exit_code == 0
    assert "\x1b" not in result.stderr


def test_a_file_may_come_from_standard_input():
    result, _ = call("export", "yaml", "-f", "-", stdin=(REPOSITORY / "examples" / "toy" / "job.yaml").read_text())
    assert yaml.safe_load(result.stdout)["metadata"] == {"name": "toy"}


def test_run_hands_the_job_over_with_what_shall_follow():
    result, ((job, after),) = call("run", "-i", "i", "--name", "toy", "--wait", "--", "t.py")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert job.manifest["metadata"] == {"name": "toy"}
    assert after == commands.After(dry_run=False, wait=True, logs=False)


WRONG = [
    (["run", "-i", "i"], "no command: write it after --"),
    (["run", "-w", "2", "-i", "i", "--", "t.py"], "torchrun has no option -w"),
    (["submit-dist", *RUNAI[1:]], "no command: write it after --"),
    (["import", "runai", "list"], "list: write one of `runai submit-dist pytorch`"),
    (["import", "sbatch", "-f", SCRIPT], "--image: a script of Slurm names none"),
    (["import", "sbatch", "-f", "/no/file"], "-f /no/file: No such file or directory: write the path of a file"),
    (["import", "pytorchjob", "-f", TOY], "kind: ElasticPyTorchJob: must be PyTorchJob"),
    (["import", "pytorchjob", "-f", SCRIPT], "the file"),
    (["import", "pytorchjob", "-f", NCCL], "command: is absent"),
    (["export", "sbatch"], "write either -f FILE or a job's name"),
    (["export", "sbatch", "toy", "-f", TOY], "write either -f FILE or a job's name"),
    (["export", "yaml", "-f", SIMPLE], "has 0 ElasticPyTorchJobs: write a file with one"),
    (["import", "pytorchjob", "-f", SIMPLE, "--entrypoint", "a 'b"], "--entrypoint a 'b: No closing quotation"),
    (["import", "runai", *RUNAI, "-n", "?", "--", "t.py"], "--namespace ?: write lower-case letters"),
    (["export", "torchrun", "toy", "--nodes", "7"], "--nodes 7: the job may have 1 to 3 machines"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_a_wrong_call_is_one_line_and_makes_nothing(words, message):
    result, made = call(*words)
    assert isinstance(result.exception, ClientError)
    assert (result.exception.code, result.output, made) == (Code.USAGE, "", [])
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_reader_that_has_had_enough_is_not_taken_for_a_job_that_failed():
    words = [sys.executable, "-m", "elastic_client", "export", "yaml", "-f", TOY]
    done = subprocess.run(
        ["bash", "-c", f'{shlex.join(words)} | true; echo "${{PIPESTATUS[0]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("141\n", "")


SHAPES = [
    ("yaml", "kind: ElasticPyTorchJob\nmetadata: null\n", "metadata: must be a mapping with a name"),
    ("yaml", "kind: ElasticPyTorchJob\nmetadata: []\n", "metadata: must be a mapping with a name"),
    ("sbatch", "kind: ElasticPyTorchJob\n", "metadata: must be a mapping with a name"),
    ("yaml", "kind: ElasticPyTorchJob\nspec: &a [*a]\n", "the file has a part that contains itself"),
    ("pytorchjob", "kind: PyTorchJob\nspec: &a {b: *a}\n", "the file has a part that contains itself"),
    ("pytorchjob", "kind: List\nitems: [foo]\n", "items: must be a list of objects of Kubernetes"),
    ("pytorchjob", "kind: List\nitems: {a: b}\n", "items: must be a list of objects of Kubernetes"),
]


@pytest.mark.parametrize(("command", "text", "message"), SHAPES)
def test_a_file_of_another_shape_is_one_line(command, text, message):
    words = ["import" if command == "pytorchjob" else "export", command, "-f", "-"]
    result, _ = call(*words, stdin=text)
    assert isinstance(result.exception, ClientError), result.exception
    assert message in str(result.exception)


def test_the_commands_load_neither_the_models_nor_yaml_until_they_run():
    code = (
        "import sys; import elastic_client.convert.commands;"
        " print(sorted({'yaml', 'pydantic', 'kr8s'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


SHOWN = [line for block in blocks("docs/coming-from.md", "text") for line in block.commands]


@pytest.mark.parametrize("line", SHOWN)
def test_each_line_of_the_page_works_as_it_stands(line, tmp_path, monkeypatch):
    for name, path in (
        ("job.yaml", TOY),
        ("job.sh", SCRIPT),
        ("pytorchjob.yaml", NCCL if "--entrypoint" in line else SIMPLE),
    ):
        (tmp_path / name).write_text(Path(path).read_text())
    monkeypatch.chdir(tmp_path)
    kubectl, elastic, *words = shlex.split(line)
    result, made = call(*words)
    assert ((kubectl, elastic), result.exit_code) == (("kubectl", "elastic"), 0), result.stderr
    assert len(made) == (words[0] in ("run", "submit-dist"))
