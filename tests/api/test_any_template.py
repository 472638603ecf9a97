"""Whatever stands anywhere in a spec: parsing refuses it, or planning and building cope with it."""

from contextlib import suppress

import pytest

from elastic_operator.api.invalid import InvalidSpecError
from elastic_operator.api.parse import parse_spec
from elastic_operator.api.template import GPU_RESOURCES, nproc_of
from elastic_operator.plan.shape import shape_of
from tests.api.anything import FULL, ODD, places, replaced
from tests.build.objects import make_pod


def test_the_job_with_everything_in_it_is_valid():
    assert parse_spec(FULL).nproc_per_node == 2


@pytest.mark.parametrize("place", places(FULL["spec"]), ids=lambda place: ".".join(map(str, place)) or "spec")
def test_any_json_at_any_place_is_refused_or_can_be_planned_and_built(place: tuple):
    for value in ODD:
        job = {**FULL, "spec": replaced(FULL["spec"], place, value)}
        with suppress(InvalidSpecError):
            spec = parse_spec(job)
            assert nproc_of(spec, "worker") >= 1
            shape = shape_of(spec.template_of("worker"), gpu_resources=GPU_RESOURCES, volumes={"c": "bound"})
            assert min(shape.requests.values()) >= 0
            assert make_pod(spec)["spec"]["containers"]
