"""Quantities are read as the API server reads them."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_api.quantity import MAX, QuantityError, amount, milli, units

SUFFIXES = {
    "": 1,
    "m": Fraction(1, 1000),
    "u": Fraction(1, 10**6),
    "n": Fraction(1, 10**9),
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        (" 1 ", 1),
        ("1.", 1),
        (".5", 1),
        ("100m", 1),
        ("1.5", 2),
        ("-1.5", -2),
        ("1Gi", 1073741824),
        ("1.5Gi", 1610612736),
        ("2e3", 2000),
        ("2E3", 2000),
        ("2e-3", 1),
        ("2e+3", 2000),
        ("5E", 5 * 10**18),
        ("9Ei", MAX),
        ("1e19", MAX),
        ("1e999999999999", MAX),
        ("1e-999999999999", 1),
        ("0e999999999999", 0),
    ],
)
def test_a_quantity_is_counted_in_whole_units_and_fractions_round_away_from_zero(text: str, expected: int):
    assert units(text) == expected


@pytest.mark.parametrize(
    ("quantity", "expected"), [("100m", 100), ("1", 1000), ("1.0005", 1001), (2, 2000), (0.5, 500)]
)
def test_cpu_is_counted_in_thousandths_of_a_core(quantity: object, expected: int):
    assert milli(quantity) == amount("cpu", quantity) == expected


def test_everything_but_cpu_is_counted_in_whole_units():
    assert amount("memory", "1Ki") == 1024
    assert amount("nvidia.com/gpu", 2) == 2


@pytest.mark.parametrize(
    "text",
    ["", " ", "m", "1gi", "1 Gi", "1KB", "1e", "1ee3", "1.2.3", "--1", "0x10", "nan", "inf", "१", "1_000", "1" * 65],
)
def test_an_error_names_the_text(text: str):
    with pytest.raises(QuantityError) as error:
        units(text)
    assert repr(text)[:64] in str(error.value)


@pytest.mark.parametrize("value", [None, True, [], {}, float("nan"), float("inf")])
def test_what_is_neither_text_nor_a_number_is_no_quantity(value: object):
    with pytest.raises(QuantityError):
        milli(value)


@given(
    digits=st.integers(0, 10**9),
    places=st.integers(0, 6),
    suffix=st.sampled_from(sorted(SUFFIXES)),
)
def test_the_result_is_exact_up_to_its_last_unit(digits: int, places: int, suffix: str):
    text = f"{digits:0{places + 1}d}"
    text = f"{text[:-places]}.{text[-places:]}{suffix}" if places else f"{text}{suffix}"
    exact = Fraction(digits, 10**places) * SUFFIXES[suffix]
    for read, scale in ((units, 1), (milli, 1000)):
        result = read(text)
        assert result == MAX or 0 <= result - exact * scale < 1
        assert (result == MAX) == (exact * scale > MAX - 1)


@given(st.text() | st.floats() | st.integers() | st.from_regex(r"[+-]?[0-9.]{1,5}[eEkKmMGi0-9-]{0,5}"))
def test_any_value_is_a_number_or_a_quantity_error(value: object):
    with suppress(QuantityError):
        assert abs(units(value)) <= MAX
