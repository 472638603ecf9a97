"""What is exported runs nothing that a text of the job asks the shell for, and gives each text on as it is."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_client.convert.converted import ConvertError
from elastic_client.convert.to_sbatch import to_sbatch
from elastic_client.convert.to_torchrun import to_torchrun
from tests.client.convert.test_exports import SLURM, make_job

STUBS = {
    "scontrol": "echo a; echo b",
    "torchrun": 'printf "%s\\0" "$@" >words; /usr/bin/env -0 >set',
    "srun": 'while [[ ${1-} == --* ]]; do shift; done; exec "$@"',
}
"""`srun` runs the command as the second of two nodes would."""
HOSTILE = (
    ";>PWN;",
    "$(>PWN)",
    "`>PWN`",
    "\n>PWN\n",
    "a[$(>PWN)]",
    "x}$(>PWN)",
    "'",
    '"',
    "\\",
    "$",
    "$$",
    "$(A)",
    "$(B)",
    "$(NO)",
    "$(ELASTIC_POD_RANK)",
    "$(ELASTIC_JOB_NAME)",
    "$(ELASTIC_ROLE)",
    "${A}",
    "}",
    "#",
    "!",
    "!!",
    " ",
    "\r",
    "\x1b[31m",
    "\x9b",
    "é",
    "a",
    "-",
)
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
texts = st.lists(st.sampled_from(HOSTILE) | any_text, max_size=4).map("".join)
"""Pieces of shell that would make a file PWN, and characters that end quotes."""
names = st.just("A") | texts | st.sampled_from(["a.b", "A;>PWN;B", "RANDOM", "SECONDS", "BASH_ENV", "head_node"])


def as_in_pod(text, known):
    """What Kubernetes makes of a text, as its `expansion.Expand` does."""
    return re.sub(r"\$(\$|\(([^)]*)\))", lambda m: "$" if m[1] == "$" else known.get(m[2], m[0]), text, flags=re.DOTALL)


def run(script, folder):
    """Bash runs the script; what torchrun was called with, and its variables."""
    for name, text in STUBS.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    (folder / "script").write_bytes(script.encode())
    done = subprocess.run(
        ["/bin/bash", "script"],
        cwd=folder,
        env={"PATH": f"{folder}:/usr/bin:/bin", "S": "secret", **SLURM},
        capture_output=True,
        check=False,
        timeout=30,
    )
    left = {path.name for path in folder.iterdir()} - {*STUBS, "script", "words", "set"}
    assert left == set(), (script, left)
    if not (folder / "words").exists():
        return None, {}, done
    read = (folder / "words").read_bytes().decode().split("\0")[:-1]
    pairs = (pair.partition("=") for pair in (folder / "set").read_bytes().decode().split("\0")[:-1])
    return read, {name: value for name, _, value in pairs}, done


def exports(body):
    """The scripts of a job, each with the rank of the machine that it is for; none where the job is refused."""
    for make in (to_sbatch, lambda body: "\n".join(_last(to_torchrun(body))) + "\n"):
        with contextlib.suppress(ConvertError):
            yield make(body)


def _last(lines):
    """The lines for the second of two machines."""
    start = next(number for number, line in enumerate(lines) if line.startswith("# machine 2"))
    return lines[start:]


def in_folder(script):
    folder = Path(tempfile.mkdtemp())
    try:
        return run(script, folder)
    finally:
        shutil.rmtree(folder)


@settings(max_examples=60, deadline=None)
@given(name=names, value=texts, other=texts, args=st.lists(texts, max_size=3))
def test_variables_and_arguments_come_as_they_would_in_a_pod(name, value, other, args):
    env = [{"name": name, "value": value}, {"name": "B", "value": other}]
    known = {"ELASTIC_POD_RANK": "1", "ELASTIC_JOB_NAME": "toy", "ELASTIC_ROLE": "worker"}
    for one in env:
        known[one["name"]] = as_in_pod(one["value"], known)
    for script in exports(make_job(env=env, args=["t.py", *args])):
        words, variables, done = in_folder(script)
        assert (done.returncode, done.stderr) == (0, b""), script
        assert words[words.index("t.py") :] == ["t.py", *(as_in_pod(arg, known) for arg in args)], script
        assert {key: variables[key] for key in (name, "B")} == {key: known[key] for key in (name, "B")}, script


@settings(max_examples=60, deadline=None)
@given(
    secret=st.tuples(texts, texts),
    command=texts,
    texts=st.tuples(texts, texts, texts, texts, texts),
    name=texts.filter(bool),
)
def test_no_other_text_of_the_job_runs_anything(secret, command, texts, name):
    image, folder, volume, field, path = texts
    body = make_job(
        image=image or "i",
        command=[f"/opt/{command}/torchrun"],
        workingDir=folder,
        env=[
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": secret[0], "key": secret[1]}}},
            {"name": "M", "valueFrom": {"configMapKeyRef": {"name": secret[1], "key": secret[0]}}},
        ],
        volumeMounts=[{"name": volume, "mountPath": path}],
        pod={"volumes": [{"name": volume, "hostPath": {"path": path}}], "nodeSelector": {field: field}},
        metadata={"generateName": name, "annotations": {field: volume}, "labels": {volume: field}},
        spec={"priorityClassName": field},
    )
    body["spec"]["template"]["metadata"] = {"annotations": {field: volume}}
    for script in exports(body):
        in_folder(script)


REFUSED = [
    ({"env": [{"name": "a.b", "value": "1"}]}, "env a.b: a shell has no variable of that name"),
    ({"env": [{"name": "A;touch x;B", "value": "1"}]}, "env A;touch x;B: a shell has no variable of that name"),
    ({"env": [{"name": "A\n>PWN", "value": "1"}]}, "env A >PWN: a shell has no variable of that name"),
    ({"env": [{"name": "RANDOM", "value": "1"}]}, "env RANDOM: the shell sets it itself"),
    ({"env": [{"name": "BASH_ENV", "value": "1"}]}, "env BASH_ENV: the shell sets it itself"),
]


@pytest.mark.parametrize("export", [to_sbatch, to_torchrun])
@pytest.mark.parametrize(("parts", "message"), REFUSED)
def test_a_variable_that_no_shell_can_export_is_refused(export, parts, message):
    with pytest.raises(ConvertError) as refused:
        export(make_job(**parts))
    assert message in str(refused.value)
