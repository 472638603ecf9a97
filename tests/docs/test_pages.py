"""All pages: each command is run by a test or has a reason, each link leads somewhere, what is named is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from devcluster import binaries
from elastic_api.parse import parse_policy, parse_spec
from elastic_api.policy import PLURAL as POLICIES
from elastic_api.status import Phase
from elastic_operator.plan.facts.decisions import EventReason
from generate.values_table import VALUES, values
from tests.chart.rendering import render
from tests.docs.pages import NAMES, REPOSITORY, SHELL, Block, anchors, blocks, inline, links, text

RUN_BY = {
    "README.md": "tests/cluster/test_readme.py",
    "docs/tutorial.md": "tests/cluster/test_readme.py",
    "docs/install.md": "tests/cluster/test_readme.py",
    "docs/release.md": "tests/cluster/test_release.py",
    "docs/dry-run.md": "tests/cluster/test_readme.py",
    "docs/beside-others.md": "tests/cluster/test_readme.py",
    "docs/runbook.md": "tests/cluster/test_readme.py",
    "docs/quotas.md": "tests/tools/test_docs.py",
    **{page: "tests/cluster/test_examples.py" for page in NAMES if page.startswith("examples/")},
    "examples/toy/README.md": "tests/cluster/test_toy.py",
    **{
        f"examples/{name}/README.md": "tests/cluster/test_examples_shared.py"
        for name in ("hpa", "spot", "time-sharing", "by-day")
    },
    "docs/slurm.md": "tests/slurm/test_slurm.py",
    "examples/slurm/README.md": "tests/slurm/test_slurm.py",
}
"""Which test runs the blocks of language sh."""
BY_HELM = "tests/cluster/test_install.py installs this chart by the same command, with the images just built"
NOT_RUN = {
    ("CONTRIBUTING.md", "make check"): "it would run this test",
    ("charts/elastic-pytorch/README.md", "helm upgrade --install"): BY_HELM,
    ("examples/README.md", "sed -i"): "the same lines of README.md are run",
}
"""Blocks that no test runs as they stand, by page and by how they begin, with the reason."""
NOT_OURS = {
    ("docs/install.md", "rule_files"): "a configuration of Prometheus: tests/cluster/test_dashboard.py",
    ("docs/from-pytorchjob.md", "apiVersion: kubeflow.org/v1"): "what the page begins with",
}
"""Blocks of YAML that nothing of ours reads, by how they begin."""
KUBERNETES = {
    "nodes",
    "pods",
    "pod",
    "deployments",
    "leases",
    "lease",
    "networkpolicies",
    "storageclass",
    "events",
    "hpa",
}
JOBS = {"elasticpytorchjob", "elasticpytorchjobs", "eptj"}
ASKED = re.compile(r"kubectl (?:-n \w+ |--namespace \S+ )?(?:get|describe) ([a-z]\w*)")
METRIC = re.compile(r"elastic_pytorch_\w+(?![\w-])")
VALUE = re.compile(
    r"(?<![\w/.])(?:settings|rbac|crds|metrics|admission|priorityClasses|networkPolicy|workerImage)(?!\.py)(?:\.\w+)+"
)
MAKE = re.compile(r"(?:^|\()make ([a-z-]+)")
PATH = re.compile(r"[\w./-]+(?:\.py|/)")
_OURS = (path for pattern in ("[a-z]*", "[a-z]*/**/*") for path in REPOSITORY.glob(pattern))
PATHS = {f"/{path.relative_to(REPOSITORY)}{'/' * path.is_dir()}" for path in _OURS}
"""All folders and files of the repository."""
CODE = [path for folder in ("api", "client", "operator", "worker") for path in (REPOSITORY / folder).rglob("*.py")]
IN_MODULE = re.compile(r"`([A-Za-z_]\w*)` in `([\w/]+\.py)`")
LINE_OF_A_MODULE = re.compile(r"^ +\* `([\w/]+\.py)`[: ]?(.*)$", re.MULTILINE)
NAME = re.compile(r"`([A-Za-z_]\w*)`")
EVENT = re.compile(r"\bevents? \(?`([A-Z]\w*)`", re.IGNORECASE)
USES_A_PHASE = re.compile(
    r"from elastic_api\.status import .*\bPhase\b|^    Phase,$|^class Phase\(StrEnum\)", re.MULTILINE
)
OF_CLASS = re.compile(r"`(?P<owner>[A-Z]\w*[a-z]\w*)\.(?P<name>[a-z_]\w*)`")
OF_A_CLASS = re.compile(r"`(?P<name>[a-z_]\w*)` of (?:its |the |a )?`(?P<owner>[A-Z]\w*[a-z]\w*)`")
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
KEYS = {value.key: value.default for value in values(VALUES.read_text())}
YAML = [block for page in NAMES for block in blocks(page, "yaml")]


def known(block: Block, reasons: dict[tuple[str, str], str]) -> bool:
    """Whether the block is one of these."""
    return any(block.page == page and block.text.startswith(start) for page, start in reasons)


@pytest.mark.parametrize("page", NAMES)
def test_each_command_of_a_page_is_run_by_a_test_or_has_a_reason_why_not(page):
    shown = [block for block in blocks(page, *SHELL) if not known(block, NOT_RUN)]
    assert [block.first_line for block in shown if block.language != "sh"] == [], "give the block the language sh"
    if shown:
        assert Path(page).name in (REPOSITORY / RUN_BY[page]).read_text()


@pytest.mark.parametrize(("page", "start"), NOT_RUN | NOT_OURS)
def test_each_reason_is_that_of_a_block_that_is_there(page, start):
    assert any(block.text.startswith(start) for block in blocks(page, "yaml", *SHELL))


@pytest.mark.parametrize("page", NAMES)
def test_each_link_leads_to_a_file_and_a_heading_that_are_there(page):
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (REPOSITORY / page).parent / path if path else REPOSITORY / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(str(target.resolve().relative_to(REPOSITORY))), link


def test_the_index_leads_to_each_page_once():
    linked = [link for link in links("docs/README.md") if link.endswith(".md") and "/" not in link]
    assert sorted(f"docs/{link}" for link in [*linked, "README.md"]) == sorted(n for n in NAMES if n[:5] == "docs/")


@pytest.mark.parametrize("page", NAMES)
def test_what_a_page_names_is_there(page):
    told = [*inline(page), *(command for block in blocks(page, *SHELL) for command in block.commands)]
    wrong = {
        *(f"make {name}" for words in told for name in MAKE.findall(words) if name not in TARGETS),
        *(f"value {key}" for words in told for key in VALUE.findall(words) if not is_value(key)),
        *(name for words in told for name in ASKED.findall(words) if name not in {*KUBERNETES, *JOBS, *RESOURCES}),
        *(name for words in told for name in METRIC.findall(words) if not is_metric(name)),
    }
    assert not wrong


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals.md", "docs/decisions.md"])
def test_a_module_or_folder_that_a_page_names_is_there(page):
    named = {word for word in inline(page) if PATH.fullmatch(word)}
    assert named
    assert sorted(word for word in named if not any(path.endswith(f"/{word}") for path in PATHS)) == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals.md", "docs/decisions.md"])
def test_a_function_or_attribute_that_a_page_names_is_in_its_module_or_class(page):
    code = {path: path.read_text() for path in CODE}
    named = [
        (name, [path for path in code if str(path).endswith(f"/{file}")])
        for name, file in IN_MODULE.findall(text(page))
    ]
    named += [
        (name, [path for path in code if str(path).endswith(f"/{file}")])
        for file, rest in LINE_OF_A_MODULE.findall(text(page))
        for name in NAME.findall(rest)
    ]
    named += [
        (found["name"], [path for path in code if f"class {found['owner']}" in code[path]])
        for pattern in (OF_CLASS, OF_A_CLASS)
        for found in pattern.finditer(text(page))
    ]
    assert not [name for name, paths in named if not any(re.search(rf"\b{name}\b", code[path]) for path in paths)]


def test_each_change_that_contributing_lists_names_files_by_their_whole_path():
    table = text("CONTRIBUTING.md").partition("## Where to make a change")[2]
    named = re.findall(r"`([\w./-]+\.(?:py|yaml|json))`", table)
    homes = (REPOSITORY, REPOSITORY / "operator/elastic_operator")
    assert named
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []


def test_the_operator_has_each_event_that_a_page_names():
    named = {name for page in NAMES for name in EVENT.findall(text(page))}
    assert named
    assert named <= set(EventReason)


def test_contributing_names_each_module_that_knows_a_phase():
    row = text("CONTRIBUTING.md").partition("* **a phase")[2].partition("\n* **")[0]
    named = {module for module, _ in LINE_OF_A_MODULE.findall(row)}
    used = [path for path in CODE if USES_A_PHASE.search(path.read_text())]
    whole = {str(path.relative_to(REPOSITORY)) for path in used}
    assert whole
    assert {path.removeprefix("operator/elastic_operator/") for path in whole} <= named


@pytest.mark.parametrize("phase", Phase)
def test_a_rule_of_the_planner_gives_each_phase(phase):
    rules = [path for path in CODE if "plan/job" in str(path)]
    assert any(f"Phase.{phase.name}" in path.read_text() for path in rules)


def test_each_row_of_memories_has_one_module():
    table = text("docs/internals.md").partition("## Caches")[2].partition("\n## What makes")[0]
    homes = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    assert [home for home in homes if home.count(".py`") > 1] == []


def test_architecture_names_each_module_beside_the_folders():
    package = REPOSITORY / "operator/elastic_operator"
    modules = {path.stem for path in package.glob("*.py") if not path.stem.startswith("__")}
    assert modules <= set(inline("ARCHITECTURE.md"))


def test_what_is_remembered_by_key_is_in_the_table_of_such_memories():
    table = text("docs/internals.md").partition("### By key")[2].partition("\n### ")[0]
    named = set(re.findall(r"^\| `([\w/]+\.py)`", table, re.MULTILINE))
    package = REPOSITORY / "operator/elastic_operator"
    modules = (path for folder in ("read", "loop", "plan") for path in (package / folder).rglob("*.py"))
    made = re.compile(r"= (Keyed|Single)Cache\(\)|default_factory=(Keyed|Single)Cache\)")
    remember = {str(path.relative_to(package)) for path in modules if made.search(path.read_text())}
    assert named == remember


@pytest.mark.parametrize("folder", ["plan/allocation", "plan/facts", "plan/job", "loop", "read", "pods", "tools"])
def test_the_page_of_a_folder_says_of_each_module_what_it_does(folder):
    where = REPOSITORY / "operator/elastic_operator" / folder
    page = (where / "__init__.py").read_text().partition("\nWords")[0]
    modules = (path.stem for path in where.rglob("*.py") if path.stem != "__init__")
    assert sorted(re.findall(r"^    (\w+) ", page, re.MULTILINE)) == sorted(modules)


def test_each_type_on_the_way_from_an_object_to_a_pod_is_in_the_module_that_the_page_names():
    rows = re.findall(r"^\| `(\w+)` \| `([\w/]+\.py)` \|", text("docs/internals.md"), re.MULTILINE)
    found = {(name, path): next(p for p in PATHS if p.endswith(f"/{path}")) for name, path in rows}
    modules = {name: (REPOSITORY / path[1:]).read_text() for (name, _), path in found.items()}
    missing = [name for name, code in modules.items() if not re.search(rf"^class {name}\b", code, re.MULTILINE)]
    assert found
    assert missing == []


RESOURCES = {POLICIES, POLICIES.removesuffix("ies") + "y"}


def is_value(key: str) -> bool:
    """Whether the chart has it, or has a mapping or a list there whose parts it does not name."""
    return key in KEYS or any(default and key.startswith(f"{name}.") for name, default in KEYS.items())


def is_metric(name: str) -> bool:
    """Whether docs/metrics.md has it, a histogram by any of its series; a name that ends with _ is a beginning."""
    plain = re.sub(r"_(bucket|sum|count)$", "", name)
    return f"`{plain}" in text("docs/metrics.md") if name.endswith("_") else f"`{plain}`" in text("docs/metrics.md")


@pytest.mark.parametrize("block", YAML, ids=lambda block: f"{block.page} {block.first_line[:40]}")
@pytest.mark.programs
def test_a_manifest_on_a_page_is_one_that_the_operator_or_the_chart_takes(block, tmp_path):
    body = yaml.safe_load(block.text)
    if known(block, NOT_OURS):
        return
    if block.first_line == "# values.yaml":
        (tmp_path / "values.yaml").write_text(block.text)
        assert render("--values", tmp_path / "values.yaml")
    elif body.get("kind") == "GPUQuotaPolicy":
        parse_policy(body)
    else:
        template = {"spec": {"containers": [{"name": "pytorch", "image": "x", "args": ["train.py"]}]}}
        parse_spec({"spec": {"minReplicas": 1, "maxReplicas": 2, "template": template, **body["spec"]}})


def test_the_job_of_the_readme_is_the_toy_without_its_volumes():
    (shown,) = [yaml.safe_load(block.text) for block in blocks("README.md", "yaml")]
    toy = yaml.safe_load((REPOSITORY / "examples" / "toy" / "job.yaml").read_text())
    del toy["spec"]["elasticity"]
    del toy["spec"]["template"]["spec"]["volumes"]
    del toy["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert shown == toy
    assert len(blocks("README.md", "yaml")[0].text.splitlines()) == 15


def test_the_readme_names_the_releases_of_kubernetes_that_are_tried():
    named = re.findall(r"\b1\.3\d\.\d+\b", text("README.md"))
    assert sorted(f"v{release}" for release in named) == sorted(binaries.KUBERNETES.values())
