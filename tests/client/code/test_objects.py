"""The ConfigMap of a folder, and the job that mounts it."""

from __future__ import annotations

import base64
import re

import pytest

from elastic_client.code.folder import Code, File
from elastic_client.code.objects import MOST_APPLIED, by_hand, code_of, config_map, name_of, with_code
from elastic_client.convert.converted import ConvertError
from elastic_client.convert.manifest import as_written
from elastic_client.convert.run import RunFlags, from_flags
from elastic_client.convert.to_sbatch import to_sbatch
from elastic_client.convert.to_torchrun import to_torchrun
from tests.api.jobs import make_job
from tests.client.code.folders import make_code, make_folder


def run(folder, *command, **flags):
    return from_flags(RunFlags(command=command or ("train.py",), image="i", code=str(folder), **flags))


def pod(manifest):
    return manifest["spec"]["template"]["spec"]


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path / "proj", train_py="import helper\n", helper_py="", pkg__a_py="")


def test_keys_are_names_that_kubernetes_takes_and_items_give_the_paths_back():
    files = ("pkg/ü b.py", "pkg/__init__.py", "a" * 300, "run.sh", "train.py")
    code = Code("proj", tuple(File(path, path.encode(), path == "run.sh") for path in files))
    (volume,) = pod(with_code(make_job("toy"), code))["volumes"]
    contents, items = config_map(code)["binaryData"], volume["configMap"]["items"]
    assert {item["path"]: base64.b64decode(contents[item["key"]]) for item in items} == {
        path: path.encode() for path in files
    }
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) for key in contents)
    assert {item["path"]: item["mode"] for item in items if "mode" in item} == {"run.sh": 0o755}


def test_the_name_and_the_annotation_say_which_code_it_is():
    code = make_code()
    body = config_map(code)
    assert body["metadata"]["name"] == f"code-{code.digest[:16]}" == name_of(code)
    assert body["immutable"] is True
    job = with_code(make_job("toy"), code)
    assert job["metadata"]["annotations"] == {"elastic-pytorch.dev/code": f"proj, 1 file, 8 B, sha256:{code.digest}"}


def test_the_job_begins_in_the_code_unless_it_says_where(folder):
    (main,) = pod(run(folder).manifest)["containers"]
    assert (main["args"], main["workingDir"]) == (["train.py"], "/code")
    assert main["volumeMounts"] == [{"name": "code", "mountPath": "/code", "readOnly": True}]
    (main,) = pod(run(folder, "/code/train.py", working_dir="/scratch").manifest)["containers"]
    assert main["workingDir"] == "/scratch"


def test_the_master_s_own_template_has_it_too_and_the_given_manifest_stays_as_it_is():
    own = make_job("toy")["spec"]["template"]
    job = make_job("toy", master={"template": own})
    made = with_code(job, make_code())
    assert code_of(made["spec"]["master"]["template"]) == code_of(made["spec"]["template"]) == name_of(make_code())
    assert "volumes" not in own["spec"]


TAKEN = ["/code", "/code/", "/code/data", "/x/../code"]


@pytest.mark.parametrize("path", TAKEN)
def test_a_job_that_mounts_something_there_is_refused(folder, path):
    with pytest.raises(ConvertError, match=f"{path} has the volume claim-data already: mount that one elsewhere"):
        run(folder, pvc=[f"data:{path}"])


def test_a_volume_of_the_same_name_stays(folder):
    made = run(folder, volume=["configmap/x:/codes", "/code:/codec"])
    assert [one["name"] for one in pod(made.manifest)["volumes"]] == ["configmap-x", "code", "code-of-job"]
    assert code_of(made.manifest["spec"]["template"]) == name_of(made.code)


MISSING = [
    (("src/train.py",), "src/train.py: --code ships the folder proj, which has no such file; did you mean train.py?"),
    (("trian.py", "--lr", "1"), "did you mean train.py?"),
    (("torchrun", "--nproc-per-node=2", "/code/none.py"), "it has: helper.py, pkg/a.py, train.py"),
    (("--nnodes=2", "python", "trian.py"), "did you mean train.py?"),
]


@pytest.mark.parametrize(("command", "told"), MISSING)
def test_a_script_that_the_folder_does_not_have_is_refused_before_there_is_a_job(folder, command, told):
    with pytest.raises(ConvertError) as refused:
        run(folder, *command)
    assert told in str(refused.value)


FOUND = [
    ("./train.py",),
    ("pkg/a.py",),
    ("-m", "pkg.a"),
    ("/app/train.py",),
    ("bash", "x.sh"),
    ("python", "-c", "1"),
]


@pytest.mark.parametrize("command", FOUND)
def test_what_the_folder_has_or_the_image_may_have_is_not_refused(folder, command):
    assert run(folder, *command).code is not None


def test_what_creates_it_by_hand_is_told_what_this_client_would_do():
    assert by_hand(make_code()) == [
        f"The ConfigMap {name_of(make_code())} stays when the job is deleted: delete it yourself."
    ]
    for size, is_said in ((MOST_APPLIED * 3 // 4 - 1000, False), (MOST_APPLIED * 3 // 4, True)):
        said = by_hand(Code("proj", (File("a", b"x" * size),)))
        assert any("kubectl apply --server-side" in line for line in said) == is_said


def test_exports_say_where_the_code_is(folder):
    made = run(folder, name="toy", workers="1:2")
    name = name_of(made.code)
    assert f"# The code at /code is in the ConfigMap {name}: put the folder" in "\n".join(to_torchrun(made.manifest))
    assert f"The code at /code (ConfigMap {name}): put the folder" in " ".join(to_sbatch(made.manifest).split())
    assert as_written(made.manifest) == made.manifest
    plain = from_flags(RunFlags(command=["train.py"], image="i", name="toy"))
    assert "ConfigMap" not in "\n".join(to_torchrun(plain.manifest))
