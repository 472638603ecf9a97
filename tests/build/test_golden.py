import pytest
import yaml

from tests.build.golden_files import FOLDER, as_yaml, golden_objects
from tests.build.renew import COMMAND

OBJECTS = golden_objects()


@pytest.mark.parametrize("name", OBJECTS)
def test_the_objects_of_a_typical_job_are_those_in_golden(name):
    written = (FOLDER / f"{name}.yaml").read_text()
    assert as_yaml(OBJECTS[name]) == written, f"if the change is meant, run `{COMMAND}` and read the diff"


@pytest.mark.parametrize("name", OBJECTS)
def test_the_golden_text_is_the_whole_object(name):
    assert yaml.safe_load(as_yaml(OBJECTS[name])) == OBJECTS[name]


def test_there_is_no_golden_file_without_an_object():
    assert {path.stem for path in FOLDER.iterdir()} == set(OBJECTS)
