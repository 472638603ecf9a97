"""The rules of pod templates as CEL, for a ValidatingAdmissionPolicy: most mistakes are reported at `kubectl apply`
(17).

The job's definition cannot have these rules, as its CEL cannot look into a template. Texts and reserved names are those
of `template_rules.py` and `elastic.py`. The operator reports what is not covered here (amounts, types, volumes), and
everything if no such policy is installed. An expression that cannot be evaluated refuses nothing.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from elastic_operator.api import elastic, template_rules
from elastic_worker import contract

NO_GPUS = template_rules.NO_GPUS.split("{gpus}")


def text() -> str:
    """The file that the chart reads: variables and validations. The chart adds the variable `gpus`."""
    head = "# Generated from elastic_operator.api.admission by `make generated`.\n"
    return head + yaml.safe_dump({"variables": _variables(), "validations": _validations()}, width=120, sort_keys=False)


def _variables() -> list[dict[str, str]]:
    found = {"elastic": _ELASTIC, "templates": _TEMPLATES, "master": _pod_of("master"), "worker": _pod_of("worker")}
    found |= {name: _in_each_template(errors) for name, errors in _RULES.items()}
    found |= {name: f"variables.elastic ? {_in_each_template(errors)} : []" for name, errors in _ELASTIC_RULES.items()}
    found["masterGpus"], found["workerGpus"] = _gpus("variables.master"), _gpus("variables.worker")
    return [{"name": name, "expression": expression} for name, expression in found.items()]


def _validations() -> list[dict[str, Any]]:
    lists = [
        {
            "expression": f"variables.{name}.size() == 0",
            "messageExpression": f"variables.{name}.join('; ')",
            "message": f"a pod template has a mistake of the kind {name}, which is too long to be told here",
        }
        for name in (*_RULES, *_ELASTIC_RULES)
    ]
    before, after = NO_GPUS
    field = '(has(object.spec.master) ? "spec.master.template: " : "spec.template: ")'
    text = (
        f"{field} + {_text(before)} + string(variables.workerGpus) + {_text(after).replace('{resource}', _FIRST_GPU)}"
    )
    return [*lists, {"expression": "variables.workerGpus == 0 || variables.masterGpus != 0", "messageExpression": text}]


def _text(words: str) -> str:
    """A literal."""
    return json.dumps(words)


_FIRST_GPU = '" + variables.gpus[0] + "'
_ELASTIC = 'has(object.spec.runtime) && has(object.spec.runtime.mode) && object.spec.runtime.mode == "Elastic"'


def _template(path: str) -> str:
    """A template: its place, its pod's spec, and its main container."""
    pod, main = f"object.{path}.spec", _text(contract.MAIN_CONTAINER)
    named = f"{pod}.containers.filter(c, c.name == {main})"
    return f'{{"at": dyn("{path}"), "pod": {pod}, "main": dyn({named} != [] ? {named}[0] : {pod}.containers[0])}}'


_COMMON, _MASTER, _WORKER = map(_template, ("spec.template", "spec.master.template", "spec.worker.template"))
_TEMPLATES = (
    f"has(object.spec.master) ? (has(object.spec.worker) ? [{_MASTER}, {_WORKER}] : [{_MASTER}, {_COMMON}])"
    f" : (has(object.spec.worker) ? [{_COMMON}, {_WORKER}] : [{_COMMON}])"
)


def _pod_of(role: str) -> str:
    own, common = f"object.spec.{role}.template.spec", "object.spec.template.spec"
    return f"has(object.spec.{role}) ? {own} : {common}"


def _in_each_template(errors: str) -> str:
    """The mistakes in all templates; `errors` is the text about the template `t`, "" for none."""
    return f'variables.templates.map(t, string({errors})).filter(told, told != "")'


def _message(field: str, value: str, remedy: str) -> str:
    """The text as a FieldError writes it; each part is CEL, and `value` a string."""
    return f'{field} + ": \'" + {value} + "\': " + {remedy}'


def _of_each(items: str, name: str, *, where: str, text: str) -> str:
    """The texts about those of the list `items`, each called `name`, for which `where` holds."""
    return f'{items}.filter({name}, {where}).map({name}, string({text})).join("; ")'


def _if_any(owner: str, field: str, text: str) -> str:
    return f'has({owner}.{field}) ? {text} : ""'


_MAIN = 't.at + ".spec.containers[" + string(t.pod.containers.map(c, c.name).indexOf(t.main.name)) + "]"'


def _in_each_container(errors: str) -> str:
    """The texts about the containers `c`, which are in the list `f` of the pod's spec."""
    each = f't.pod[f].map(c, string({errors})).filter(told, told != "").join("; ")'
    return f'["containers", "initContainers"].filter(f, f in t.pod).map(f, {each}).filter(told, told != "").join("; ")'


_CONTAINER = 't.at + ".spec." + f + "[" + string(t.pod[f].map(x, x.name).indexOf(c.name)) + "]"'
_NAMES = (
    "(t.pod.containers.map(x, string(x.name)) + (has(t.pod.initContainers) ?"
    " t.pod.initContainers.map(x, string(x.name)) : []))"
)


def _variable(name: str, remedy: str) -> str:
    """The texts about the variables `e` of the main container for which `name` holds."""
    place = f'{_MAIN} + ".env[" + string(t.main.env.map(x, x.name).indexOf(e.name)) + "].name"'
    return _if_any("t.main", "env", _of_each("t.main.env", "e", where=name, text=_message(place, "e.name", remedy)))


def _shown(value: str) -> str:
    """A quantity as Python shows it: text in quotes."""
    return f'(type({value}) == string ? "\'" + {value} + "\'" : string({value}))'


def _twice() -> str:
    """The text about the first name that two containers have. It names only the pod as the place."""
    again = f"{_NAMES}.filter(n, {_NAMES}.filter(m, m == n).size() > 1)"
    return f'{again}.size() > 0 ? t.at + ".spec: \'" + {again}[0] + "\': " + {_text(template_rules.NAME_TWICE)} : ""'


def _unknown_resources() -> str:
    known = json.dumps(list(template_rules.BUILT_IN_RESOURCES))
    unknown = f'!n.contains("/") && !(n in {known}) && !n.startsWith("hugepages-")'
    step = '(n.contains(".") ? "[" + n + "]" : "." + n)'
    field = f'{_CONTAINER} + ".resources." + k + {step} + ": " + {_shown("c.resources[k][n]")} + ": "'
    names = _of_each("c.resources[k]", "n", where=unknown, text=f"{field} + {_text(template_rules.UNKNOWN_RESOURCE)}")
    kinds = f'["limits", "requests"].filter(k, k in c.resources).map(k, {names}).filter(told, told != "").join("; ")'
    return _in_each_container(_if_any("c", "resources", kinds))


def _gpus_without_limit() -> str:
    limited = "has(c.resources.limits) && g in c.resources.limits"
    field = f'{_CONTAINER} + ".resources.requests[" + g + "]: " + {_shown("c.resources.requests[g]")} + ": "'
    text = f"{field} + {_text(template_rules.NO_GPU_LIMIT)}"
    where = f"g in c.resources.requests && !({limited})"
    asked = _of_each("variables.gpus", "g", where=where, text=text)
    return _in_each_container(f'has(c.resources) && has(c.resources.requests) ? {asked} : ""')


def _gpus(pod: str) -> str:
    """GPUs of a pod's containers; -1 if other resources count, too."""
    limit = "int(quantity(string(c.resources.limits[g])).asInteger())"
    of_one = f"variables.gpus.filter(g, g in c.resources.limits).map(g, {limit}).sum()"
    each = f"{pod}.containers.filter(c, has(c.resources) && has(c.resources.limits)).map(c, {of_one}).sum()"
    more = f"has({pod}.resources) || has({pod}.overhead) || has({pod}.initContainers)"
    return f"{more} ? -1 : {each}"


def _reserved() -> str:
    names, prefix = json.dumps(list(contract.RESERVED_ENV)), _text(contract.RESERVED_ENV_PREFIX)
    reasons, otherwise = json.dumps(template_rules.RESERVED_BECAUSE), _text(template_rules.POINTS_AT_MASTER)
    before = _text(template_rules.RESERVED.removesuffix("{reason}"))
    reason = f"(e.name in {reasons} ? {reasons}[e.name] : {otherwise})"
    return _variable(f"e.name in {names} || e.name.startsWith({prefix})", f"{before} + {reason}")


def _reserved_in_elastic_mode() -> str:
    instead = {name: elastic.instead_of(name) for name in sorted(elastic.RESERVED_ENV)}
    before, after = map(_text, elastic.SET_BY_US.split("{instead}"))
    return _variable(f"e.name in {json.dumps(instead)}", f"{before} + {json.dumps(instead)}[e.name] + {after}")


def _our_volumes() -> str:
    field = 't.at + ".spec.volumes[" + string(t.pod.volumes.map(x, x.name).indexOf(v.name)) + "].name"'
    text = _message(field, "v.name", _text(elastic.OURS))
    where = f"v.name in {json.dumps(list(elastic.OUR_VOLUMES))}"
    return _if_any("t.pod", "volumes", _of_each("t.pod.volumes", "v", where=where, text=text))


def _our_container() -> str:
    text = _message(f'{_CONTAINER} + ".name"', "c.name", _text(elastic.OURS))
    return _in_each_container(f'c.name == {_text(elastic.INJECT_CONTAINER)} ? {text} : ""')


def _our_folders() -> str:
    folders = json.dumps([*elastic.OUR_FOLDERS, *(f"{folder}/" for folder in elastic.OUR_FOLDERS)])
    place = "string(t.main.volumeMounts.map(x, x.mountPath).indexOf(m.mountPath))"
    text = _message(f'{_MAIN} + ".volumeMounts[" + {place} + "].mountPath"', "m.mountPath", _text(elastic.OUR_FOLDER))
    mounts = _of_each("t.main.volumeMounts", "m", where=f"m.mountPath in {folders}", text=text)
    return _if_any("t.main", "volumeMounts", mounts)


def _restarts() -> str:
    text = _message('t.at + ".spec.restartPolicy"', "t.pod.restartPolicy", _text(template_rules.RESTARTS))
    return f'has(t.pod.restartPolicy) && t.pod.restartPolicy != "Never" ? {text} : ""'


def _no_program() -> str:
    missing = [f"(!has(t.main.{field}) || t.main.{field}.size() == 0)" for field in ("args", "command")]
    return f'{" && ".join(missing)} ? {_MAIN} + ".args: " + {_text(template_rules.NO_PROGRAM)} : ""'


_RULES = {
    "restarts": _restarts(),
    "namesTwice": _twice(),
    "noProgram": _no_program(),
    "reservedVariables": _reserved(),
    "unknownResources": _unknown_resources(),
    "gpusWithoutLimit": _gpus_without_limit(),
}
_ELASTIC_RULES = {
    "elasticVariables": _reserved_in_elastic_mode(),
    "elasticVolumes": _our_volumes(),
    "elasticContainer": _our_container(),
    "elasticFolders": _our_folders(),
}
