import ast
import inspect
import itertools
import json
from dataclasses import replace

import pytest

from elastic_operator import settings
from elastic_operator.plan.facts.team import DEFAULT_POLICY, NO_POLICY, Quota
from elastic_operator.settings import Settings, SettingsError


def load(tmp_path, text="", **environ):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return settings.load(environ, file)


def test_without_a_file_all_settings_have_their_defaults(tmp_path):
    assert settings.load({}, tmp_path / "none.yaml") == Settings()


def test_the_file_is_read(tmp_path):
    assert load(tmp_path, "flavors: [{name: amd, resources: [amd.com/gpu]}]").allocation.gpu_resources == (
        "amd.com/gpu",
    )


def test_the_environment_wins_over_the_file(tmp_path):
    loaded = load(tmp_path, "logging: {level: error, format: json}", ELASTIC_OPERATOR_LOGGING__LEVEL="debug")
    assert (loaded.logging.level, loaded.logging.format) == ("debug", "json")


@pytest.mark.parametrize(("written", "mode"), [("On", "On"), ("Off", "Off"), ("DryRun", "DryRun"), ('"Off"', "Off")])
def test_the_mode_of_reclaim_may_be_written_without_quotes(tmp_path, written, mode):
    assert load(tmp_path, f"reclaim: {{mode: {written}}}").reclaim.mode == mode
    assert load(tmp_path, ELASTIC_OPERATOR_RECLAIM__MODE=written).reclaim.mode == mode


def test_a_list_can_be_given_in_the_environment(tmp_path):
    assert load(tmp_path, ELASTIC_OPERATOR_WATCH_NAMESPACES="[a, b]").watch_namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("written", "named"), [("", "from-the-file"), ('""', ""), ("''", "")], ids=["empty", "quotes", "single quotes"]
)
def test_an_empty_variable_sets_nothing_and_quotes_set_the_empty_string(tmp_path, written: str, named: str):
    variables = {"WORKER_PRIORITY_CLASS_NAME": written, "PORT": "", "RECLAIM__PAUSED": "", "WATCH_NAMESPACES": ""}
    text = "{workerPriorityClassName: from-the-file, port: 5, reclaim: {paused: true}, watchNamespaces: [a]}"
    loaded = load(tmp_path, text, **{f"ELASTIC_OPERATOR_{name}": value for name, value in variables.items()})
    assert loaded.worker_priority_class_name == named
    assert (loaded.port, loaded.reclaim.paused, loaded.watch_namespaces) == (5, True, ("a",))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("gpuResource: [x]", "gpuResource: a list: must be absent: there is no such field"),
        ("logging: {level: loud}", "logging.level: 'loud': must be 'debug', 'info', 'warning' or 'error'"),
        ("flavors: []", "flavors: a list: must have at least 1 entries"),
        ("flavors: a", "flavors: 'a': must be a list"),
        ("reclaim: {mode: Sometimes}", "'On', 'DryRun' or 'Off'"),
        ("reclaim: {maxEvictionsPerMinute: 0}", "reclaim.maxEvictionsPerMinute: 0: must be at least 1"),
        ("port: many", "port: 'many': must be an integer"),
        ("flavors: [{name: a, resources: []}]", "flavors\\[0\\].resources"),
        ("flavors: [{name: a, resources: [gpu]}]", "flavors\\[0\\].resources\\[0\\]: 'gpu': must match"),
        ("defaultPolicy: {guaranteed: 1}", "defaultPolicy.guaranteed"),
        ("defaultPolicy: {borrowing: {limit: -1}}", "defaultPolicy.borrowing.limit: -1: must be at least 0"),
        ("starvationSeconds: -1", "starvationSeconds: -1: must be at least 0"),
        ("workerImagePullSecrets: [Mirror]", "workerImagePullSecrets\\[0\\]"),
        ("workerImagePullSecrets: [{name: mirror}]", "workerImagePullSecrets\\[0\\]"),
        ("jobNetworkPolicy: {allow: []}", "jobNetworkPolicy.allow"),
        ("jobNetworkPolicy: {ingress: [{to: []}]}", "jobNetworkPolicy.ingress\\[0\\].to: a list: must be absent"),
        (
            "{workerPriorityClassName: '', plainPodQuota: {enabled: true}}",
            "plainPodQuota: .*workerPriorityClassName is",
        ),
        (
            "{masterPriorityClassName: '', plainPodQuota: {enabled: true}}",
            "plainPodQuota: .*masterPriorityClassName is",
        ),
        (
            "jobNetworkPolicy: {egress: [{to: [{}]}]}",
            "egress\\[0\\].to\\[0\\]: .*podSelector, namespaceSelector or ipBlock",
        ),
        (
            "jobNetworkPolicy: {egress: [{ports: [{protocol: tcp}]}]}",
            "egress\\[0\\].ports\\[0\\].protocol: 'tcp': must be",
        ),
        ("jobNetworkPolicy: {egress: [{to: [{podSelector: {}, ipBlock: {cidr: 0.0.0.0/0}}]}]}", "either ipBlock"),
        ("- a", "mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path, text, named):
    with pytest.raises(SettingsError, match=named):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "variable", "value", "named"),
    [
        ("", "WATCH_NAMESPACES", "[a", "ELASTIC_OPERATOR_WATCH_NAMESPACES is not YAML"),
        ("", "WATCH_NAMESPACE", "[a]", "watchNamespace: a list: must be absent"),
        ("", "LOGGING__LEVLE", "debug", "logging.levle: 'debug': must be absent"),
        (
            "logging: x",
            "LOGGING__LEVEL",
            "debug",
            "LOGGING__LEVEL sets a part of logging, which is 'x': it must be a map",
        ),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(tmp_path, text, variable, value, named):
    with pytest.raises(SettingsError, match=named):
        load(tmp_path, text, **{f"ELASTIC_OPERATOR_{variable}": value})


def test_a_variable_wins_over_what_the_file_calls_by_another_spelling(tmp_path):
    file = "{reclaim: {maxEvictionsPerMinute: 5, paused: true}, starvationSeconds: 5}"
    variables = {"RECLAIM__MAX_EVICTIONS_PER_MINUTE": "null", "STARVATION_SECONDS": "7"}
    loaded = load(tmp_path, file, **{f"ELASTIC_OPERATOR_{name}": value for name, value in variables.items()})
    assert (loaded.reclaim.max_evictions_per_minute, loaded.reclaim.paused, loaded.starvation_seconds) == (
        None,
        True,
        7,
    )


def test_each_setting_has_a_sentence_under_it():
    source = ast.parse(inspect.getsource(settings))
    for model in (node for node in source.body if isinstance(node, ast.ClassDef)):
        for field, after in itertools.pairwise([*model.body, None]):
            if isinstance(field, ast.AnnAssign):
                assert isinstance(after, ast.Expr), f"{model.name}.{ast.unparse(field.target)}"


def test_without_a_list_every_namespace_is_watched():
    assert Settings().watches("any")
    assert not Settings(watch_namespaces=("a",)).watches("b")


A100, H100 = {"gpu": "a100"}, {"gpu": "h100"}


def flavor(name="a", *, resources=("nvidia.com/gpu",), labels=None):
    return {"name": name, "resources": list(resources), "nodeSelector": labels or {}}


@pytest.mark.parametrize(
    "flavors",
    [
        [flavor("a", labels=A100), flavor("b", labels=H100)],
        [flavor("a"), flavor("b", resources=["amd.com/gpu"])],
        [flavor("a", labels=A100 | {"zone": "x"}), flavor("b", labels=H100)],
    ],
)
def test_flavors_that_no_gpu_has_two_of_are_taken(flavors):
    assert [f.name for f in Settings.model_validate({"flavors": flavors}).flavors] == ["a", "b"]


@pytest.mark.parametrize(
    "flavors",
    [
        [flavor("a"), flavor("b")],
        [flavor("a"), flavor("b", labels=A100)],
        [flavor("a", labels=A100), flavor("b", labels={"zone": "x"})],
        [flavor("a", labels=A100), flavor("b", resources=["amd.com/gpu", "nvidia.com/gpu"], labels=A100)],
    ],
)
def test_flavors_that_one_gpu_could_have_both_of_are_refused_with_the_remedy(tmp_path, flavors):
    told = "flavors: .*'a' and 'b' overlap: both have nvidia.com/gpu.* give both a nodeSelector with different values"
    with pytest.raises(SettingsError, match=told):
        load(tmp_path, json.dumps({"flavors": flavors}))


def test_two_flavors_of_one_name_are_refused(tmp_path):
    with pytest.raises(SettingsError, match="two flavors are called 'a'"):
        load(tmp_path, json.dumps({"flavors": [flavor(), flavor(resources=["amd.com/gpu"])]}))


def test_the_resources_of_all_flavors_count_as_gpus_each_once():
    flavors = [flavor("a", labels=A100), flavor("b", labels=H100), flavor("c", resources=["amd.com/gpu"])]
    assert Settings.model_validate({"flavors": flavors}).allocation.gpu_resources == ("nvidia.com/gpu", "amd.com/gpu")


def test_a_namespace_without_a_policy_is_as_the_settings_say():
    policy = {"borrowing": {"limit": 4, "weight": 0}, "priority": -1, "perJob": {"maxGPUs": 2}}
    settings = Settings.model_validate({"defaultPolicy": policy | {"perNamespace": True}})
    team = settings.allocation.default_team
    assert settings.allocation.default_parents == ()
    assert team.quotas == {"default": Quota(guaranteed=0, borrow_limit=4, weight=0)}
    assert (team.priority, team.max_gpus_per_job, team.has_policy, team.parent) == (-1, 2, False, None)


def test_all_namespaces_without_a_policy_are_together_as_the_settings_say():
    assert Settings().allocation.default_team == replace(NO_POLICY, parent=DEFAULT_POLICY)
    assert Settings().allocation.default_parents == (replace(NO_POLICY, name=DEFAULT_POLICY),)
    policy = {"borrowing": {"limit": 4, "weight": 0}, "priority": -1, "perJob": {"maxGPUs": 2}}
    settings = Settings.model_validate({"defaultPolicy": policy})
    (together,) = settings.allocation.default_parents
    assert together.quotas == {"default": Quota(guaranteed=0, borrow_limit=4, weight=0)}
    assert (settings.allocation.default_team.quotas, settings.allocation.default_team.parent) == ({}, together.name)
    for team in (together, settings.allocation.default_team):
        assert (team.priority, team.max_gpus_per_job, team.has_policy) == (-1, 2, False)
