"""The rules of pod templates are CEL in the chart and Python in the operator: here names and texts are compared.

Whether both judge alike is seen on an API server: tests/apiserver/rights/test_admission_of_jobs.py.
"""

import json
import re

import pytest
import yaml

from elastic_api import elastic, template_rules
from elastic_api.job import GROUP, KIND, PLURAL, VERSION
from elastic_worker import contract
from generate.helm import CHART

FILE = yaml.safe_load((CHART / "files" / "job-rules.yaml").read_text())
RULES = {rule["name"]: rule["expression"] for rule in FILE["rules"]}
NAMES = {
    "mainContainer": contract.MAIN_CONTAINER,
    "reserved": {
        name: template_rules.RESERVED_BECAUSE.get(name, template_rules.POINTS_AT_MASTER)
        for name in contract.RESERVED_ENV
    },
    "reservedPrefix": contract.RESERVED_ENV_PREFIX,
    "reservedInElasticMode": {name: elastic.instead_of(name) for name in elastic.RESERVED_ENV},
    "ourVolumes": list(elastic.OUR_VOLUMES),
    "ourContainer": elastic.INJECT_CONTAINER,
    "ourFolders": list(elastic.OUR_FOLDERS),
    "builtInResources": list(template_rules.BUILT_IN_RESOURCES),
}
TEXTS = {
    "restarts": [template_rules.RESTARTS],
    "namesTwice": [template_rules.NAME_TWICE],
    "noProgram": [template_rules.NO_PROGRAM],
    "reservedVariables": [template_rules.RESERVED.format(reason="%s"), template_rules.POINTS_AT_MASTER],
    "unknownResources": [template_rules.UNKNOWN_RESOURCE],
    "gpusWithoutLimit": [template_rules.NO_GPU_LIMIT],
    "masterWithoutGpus": [template_rules.NO_GPUS.format(gpus="%d", resource="%s")],
    "elasticVariables": [elastic.SET_BY_US.format(instead="%s")],
    "elasticVolumes": [elastic.OURS],
    "elasticContainer": [elastic.OURS],
    "elasticFolders": [elastic.OUR_FOLDER],
}


def test_the_names_that_the_rules_know_are_the_operators():
    assert {name["name"]: json.loads(name["expression"]) for name in FILE["names"]} == NAMES


def said(rule):
    """The texts of a rule; two in a row that are added to each other are one."""
    joined = re.sub(r'"\s*\+\s*"', "", RULES[rule])
    return [json.loads(text) for text in re.findall(r'"(?:[^"\\]|\\.)*"', joined)]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_what_the_operator_says(rule):
    for text in TEXTS[rule]:
        assert any(one == text or one.endswith(f": {text}") for one in said(rule)), text


def test_no_two_variables_have_one_name():
    names = [one["name"] for part in FILE.values() for one in part]
    assert len(names) == len({*names, "gpus"}) - 1


def test_the_rules_for_accounts_name_jobs_as_the_definition_does():
    template = (CHART / "templates" / "admission.yaml").read_text()
    assert f'o.kind == "{KIND}"' in template
    assert set(re.findall(r'apiVersion\.startsWith\("(.*?)"\)', template)) == {f"{GROUP}/"}
    assert f"apiGroups: [{GROUP}]\n        apiVersions: [{VERSION}]" in template
    assert f"resources: [{PLURAL}]" in template
