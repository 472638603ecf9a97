"""The device plugin's messages, byte for byte, and what it answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster import protobuf
from devcluster.device_plugin import Gpus, allocate_response, device_list, register_request


def make_gpus(tmp_path, *, count=2, torch=None):
    return Gpus(prefix="n1", count=count, sick_file=tmp_path / "sick", torch=torch)


@pytest.mark.parametrize(("number", "encoded"), [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02")])
def test_numbers_are_encoded_as_the_format_s_documentation_shows(number, encoded):
    assert protobuf.varint(number).hex() == encoded


def test_text_is_encoded_as_the_format_s_documentation_shows():
    assert protobuf.field(2, "testing").hex() == "120774657374696e67"


def test_a_negative_number_is_refused():
    with pytest.raises(ValueError, match="negative"):
        protobuf.varint(-1)


@given(values=st.lists(st.binary()), number=st.integers(1, 2000), flag=st.booleans())
def test_what_was_encoded_is_read_again_and_other_fields_are_passed_over(values, number, flag):
    data = b"".join(protobuf.field(number, value) for value in values)
    data = protobuf.field(number + 1, flag) + data + protobuf.field(number + 2, "other")
    assert protobuf.messages(data, number) == values


@given(value=st.binary(min_size=1), cut=st.integers(min_value=1))
def test_a_message_that_was_cut_off_is_refused(value, cut):
    data = protobuf.field(1, value)
    with pytest.raises(ValueError, match=r"says|middle"):
        protobuf.messages(data[: -min(cut, len(data) - 1)], 1)


def test_sick_gpus_are_listed_as_unhealthy(tmp_path):
    devices = protobuf.messages(device_list(make_gpus(tmp_path), sick=frozenset({1})), 1)
    listed = [(protobuf.messages(device, 1)[0], protobuf.messages(device, 2)[0]) for device in devices]
    assert listed == [(b"n1-gpu-0", b"Healthy"), (b"n1-gpu-1", b"Unhealthy")]


def test_the_file_of_sick_gpus_may_be_missing_or_hold_nonsense(tmp_path):
    gpus = make_gpus(tmp_path)
    assert gpus.sick() == frozenset()
    gpus.sick_file.write_text("1\nx -1 0\n")
    assert gpus.sick() == frozenset({0, 1})


def environment_of(container):
    entries = protobuf.messages(container, 1)
    return {protobuf.messages(e, 1)[0].decode(): protobuf.messages(e, 2)[0].decode() for e in entries}


def test_each_container_is_told_its_own_gpus_and_sees_the_torch_tree_read_only(tmp_path):
    asked = [["n1-gpu-0", "n1-gpu-1"], ["n1-gpu-2"]]
    request = b"".join(protobuf.field(1, b"".join(protobuf.field(1, gpu) for gpu in gpus)) for gpus in asked)
    answers = protobuf.messages(allocate_response(make_gpus(tmp_path, torch=tmp_path / "torch"), request), 1)
    assert [environment_of(a)["NVIDIA_VISIBLE_DEVICES"] for a in answers] == ["n1-gpu-0,n1-gpu-1", "n1-gpu-2"]
    assert environment_of(answers[0])["PYTHONPATH"] == "/opt/torch"
    assert environment_of(answers[0])["PATH"].startswith("/opt/torch/bin:/usr/local/sbin:")
    (mount,) = protobuf.messages(answers[0], 2)
    expected = protobuf.field(1, "/opt/torch") + protobuf.field(2, str(tmp_path / "torch")) + b"\x18\x01"
    assert mount == expected


def test_without_a_torch_tree_a_container_keeps_its_path(tmp_path):
    request = protobuf.field(1, protobuf.field(1, "n1-gpu-0"))
    (answer,) = protobuf.messages(allocate_response(make_gpus(tmp_path), request), 1)
    assert environment_of(answer) == {"NVIDIA_VISIBLE_DEVICES": "n1-gpu-0"}
    assert protobuf.messages(answer, 2) == []


def test_the_plugin_registers_the_resource_that_gpu_jobs_ask_for():
    assert protobuf.messages(register_request(), 3) == [b"nvidia.com/gpu"]
