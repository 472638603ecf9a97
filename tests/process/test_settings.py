import pytest

from elastic_operator import settings
from elastic_operator.settings import Settings, SettingsError


def load(tmp_path, text="", **environ):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return settings.load(environ, file)


def test_without_a_file_all_settings_have_their_defaults(tmp_path):
    assert settings.load({}, tmp_path / "none.yaml") == Settings()


def test_the_file_is_read(tmp_path):
    assert load(tmp_path, "gpuResources: [amd.com/gpu]").gpu_resources == ("amd.com/gpu",)


def test_the_environment_wins_over_the_file(tmp_path):
    loaded = load(tmp_path, "logging: {level: error, format: json}", ELASTIC_OPERATOR_LOGGING__LEVEL="debug")
    assert (loaded.logging.level, loaded.logging.format) == ("debug", "json")


def test_a_list_can_be_given_in_the_environment(tmp_path):
    assert load(tmp_path, ELASTIC_OPERATOR_WATCH_NAMESPACES="[a, b]").watch_namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("gpuResource: [x]", "gpuResource"),
        ("logging: {level: loud}", "loud"),
        ("gpuResources: []", "gpuResources"),
        ("- a", "mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path, text, named):
    with pytest.raises(SettingsError, match=named):
        load(tmp_path, text)


def test_without_a_list_every_namespace_is_watched():
    assert Settings().watches("any")
    assert not Settings(watch_namespaces=("a",)).watches("b")
