"""The example manifests say what the operator understands, and fit together."""

import re
import subprocess
from pathlib import PurePath

import pytest
import yaml

from devcluster import binaries
from devcluster.progress import Progress
from elastic_api.job import API_VERSION, KIND, JobSpec
from elastic_api.policy import PolicySpec
from tests.examples.torchrun import EXAMPLES

JOBS = sorted(EXAMPLES.glob("*/job.yaml"))
SCRIPTS = sorted(path.parent.name for path in EXAMPLES.glob("*/train.py"))
ELASTIC = sorted(name for name in SCRIPTS if "mode: Elastic" in (EXAMPLES / name / "job.yaml").read_text())
MADE_OTHERWISE = {".yaml", ".md"}
CONFIG_MAPS = {
    **{
        f"{name}-script": {path.name for path in (EXAMPLES / name).iterdir() if path.suffix not in MADE_OTHERWISE}
        for name in SCRIPTS
    },
    "launch-sh": {"launch.sh"},
}
CLAIMS = {yaml.safe_load((EXAMPLES / "toy" / "pvc.yaml").read_text())["metadata"]["name"]}
KUSTOMIZED = sorted(path.parent for path in EXAMPLES.glob("**/kustomization.yaml"))
IDS = [path.parent.name for path in JOBS]


def job(name: str) -> JobSpec:
    """The spec of an example."""
    return JobSpec.model_validate(yaml.safe_load((EXAMPLES / name / "job.yaml").read_text())["spec"])


def main_containers(spec: JobSpec) -> list[dict]:
    """The main containers of master and worker."""
    return [spec.template_of(role)["spec"]["containers"][0] for role in ("master", "worker")]


def gpus(spec: JobSpec) -> list[int]:
    """GPUs of the master's pod and of a worker's."""
    return [container["resources"]["limits"]["nvidia.com/gpu"] for container in main_containers(spec)]


@pytest.mark.programs
@pytest.mark.parametrize("folder", KUSTOMIZED, ids=lambda folder: str(folder.relative_to(EXAMPLES)))
def test_kustomize_makes_jobs_and_policies_that_the_operator_takes(folder):
    kubectl = binaries.ensure(Progress(quiet=True))["kubectl"]
    made = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True).stdout
    objects = list(yaml.safe_load_all(made))
    jobs = [each for each in objects if each["kind"] == KIND]
    assert len(jobs) == 1
    assert JobSpec.model_validate(jobs[0]["spec"]).sizes()
    for policy in (each for each in objects if each["kind"] == "GPUQuotaPolicy"):
        PolicySpec.model_validate(policy["spec"])
    namespace = jobs[0]["metadata"].get("namespace")
    needed = {each["kind"] for each in objects if each["metadata"].get("namespace") == namespace}
    assert needed >= {KIND, "ConfigMap", "PersistentVolumeClaim"}
    scaled = [each["spec"]["scaleTargetRef"]["name"] for each in objects if each["kind"] == "HorizontalPodAutoscaler"]
    names = {each["metadata"]["name"] for each in objects if each["kind"] in (KIND, "Deployment")}
    assert set(scaled) <= names


@pytest.mark.parametrize("path", JOBS, ids=IDS)
def test_a_manifest_is_a_valid_job_named_like_its_folder(path):
    manifest = yaml.safe_load(path.read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == (API_VERSION, KIND)
    assert manifest["metadata"] == {"name": path.parent.name}
    JobSpec.model_validate(manifest["spec"])


@pytest.mark.parametrize("name", IDS)
def test_a_job_mounts_only_what_the_examples_create(name):
    for role in ("master", "worker"):
        for volume in job(name).template_of(role)["spec"]["volumes"]:
            used = re.findall(r"'configMap': {'name': '([^']+)'}", str(volume))
            claims = re.findall(r"'claimName': '([^']+)'", str(volume))
            assert used or claims
            assert set(used) <= set(CONFIG_MAPS)
            assert set(claims) <= CLAIMS


@pytest.mark.parametrize("name", IDS)
def test_jobs_do_not_share_a_checkpoint(name):
    for container in main_containers(job(name)):
        saved = {PurePath(word) for word in container["args"] if word.startswith("/checkpoints/")}
        assert [path.with_suffix("") for path in saved] == [PurePath("/checkpoints", name)]


def test_the_toy_takes_one_to_three_pods_of_four_gpus():
    spec = job("toy")
    assert (spec.sizes(), gpus(spec)) == ((1, 2, 3), [4, 4])


@pytest.mark.parametrize("name", ELASTIC)
def test_the_elastic_jobs_name_the_checkpoint_that_their_scripts_write(name):
    spec = job(name)
    assert spec.is_elastic
    assert spec.elasticity.checkpoint_path in main_containers(spec)[0]["args"]


def test_the_heterogeneous_job_has_a_smaller_master():
    assert gpus(job("heterogeneous")) == [1, 2]


def test_the_fixed_size_job_has_one_size():
    assert job("fixed-size").sizes() == (2,)


def test_two_to_four_starts_with_what_its_team_is_guaranteed_and_only_team_c_may_not_have_more():
    policies = list(yaml.safe_load_all((EXAMPLES / "two-to-four" / "policies.yaml").read_text()))
    specs = {policy["metadata"]["name"]: PolicySpec.model_validate(policy["spec"]) for policy in policies}
    quotas = {name: spec.flavors[0] for name, spec in specs.items()}
    assert {name: quota.guaranteed for name, quota in quotas.items()} == {"team-a": 2, "team-b": 2, "team-c": 2}
    assert {name: quota.borrowing.limit for name, quota in quotas.items()} == {
        "team-a": None,
        "team-b": None,
        "team-c": 0,
    }
    assert (job("two-to-four").sizes(), gpus(job("two-to-four"))) == ((2, 3, 4), [1, 1])


@pytest.mark.parametrize("name", SCRIPTS)
def test_all_ask_for_the_same_volume(name):
    assert (EXAMPLES / name / "pvc.yaml").read_text() == (EXAMPLES / "toy" / "pvc.yaml").read_text()


def test_both_forms_of_the_digits_learn_the_same():
    one, other = EXAMPLES / "digits-ddp", EXAMPLES / "digits-library"
    assert (one / "digits.csv.gz").read_bytes() == (other / "digits.csv.gz").read_bytes()
    shared = re.compile(r"^(?:TRAINED =|def read_digits\(|def make_model\()(?s:.*?)\n\n\n", re.MULTILINE)
    assert len(shared.findall((one / "train.py").read_text())) == 3
    assert shared.findall((one / "train.py").read_text()) == shared.findall((other / "train.py").read_text())


@pytest.mark.parametrize("name", SCRIPTS)
def test_kustomize_makes_the_config_map_that_the_job_mounts(name):
    kustomization = yaml.safe_load((EXAMPLES / name / "kustomization.yaml").read_text())
    made = {generator["name"]: set(generator["files"]) for generator in kustomization["configMapGenerator"]}
    assert made == {f"{name}-script": CONFIG_MAPS[f"{name}-script"]}
    assert kustomization["generatorOptions"]["disableNameSuffixHash"] is True
    for resource in kustomization["resources"]:
        assert (EXAMPLES / name / resource).is_file()
