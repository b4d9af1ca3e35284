"""Units: what humans write, and what code computes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trimtab_api.errors import UserError
from trimtab_api.units import (
    format_bandwidth,
    format_duration,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("parse", "text", "amount"),
    [
        (parse_duration, "5ms", 0.005),
        (parse_duration, "250us", 250e-6),
        (parse_duration, "2s", 2.0),
        (parse_duration, "1.5 min", 90.0),
        (parse_duration, "1h", 3600.0),
        (parse_duration, "0s", 0.0),
        (parse_bandwidth, "1Gbps", 125e6),
        (parse_bandwidth, "200Mbps", 25e6),
        (parse_bandwidth, "8kbps", 1000.0),
        (parse_bandwidth, "8bps", 1.0),
        (parse_size, "25MB", 25_000_000),
        (parse_size, "64MiB", 64 * 2**20),
        (parse_size, "1kB", 1000),
        (parse_size, "1KiB", 1024),
    ],
)
def test_units_are_si(parse, text, amount):
    assert parse(text) == pytest.approx(amount)


@pytest.mark.parametrize("text", ["", "5", "ms", "-5ms", "5 m s", "5Ms", "1Gbps", "nan s", "1e3s", "٥ms"])
def test_a_wrong_duration_names_the_value_and_the_remedy(text):
    with pytest.raises(UserError) as error:
        parse_duration(text)
    assert error.value.value == text
    assert "write a duration such as 5ms or 2s (units: us, ms, s, min, h)" in str(error.value)


def test_sizes_and_bandwidths_do_not_take_each_others_units():
    with pytest.raises(UserError, match="'1Gbps': write a size such as 25MB"):
        parse_size("1Gbps")
    with pytest.raises(UserError, match="'1GB': write a bandwidth such as 200Mbps"):
        parse_bandwidth("1GB")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (format_duration(0.005), "5ms"),
        (format_duration(0.9999), "1s"),
        (format_duration(0), "0us"),
        (format_duration(7200), "7200s"),
        (format_bandwidth(125e6), "1Gbps"),
        (format_bandwidth(12.5e6), "100Mbps"),
        (format_bandwidth(999.9e6 / 8), "1Gbps"),
        (format_size(25_000_000), "25MB"),
        (format_size(512), "512B"),
    ],
)
def test_formats_are_what_a_human_writes(written, text):
    assert written == text


@given(st.floats(1e-6, 1e6))
def test_formatting_keeps_three_digits(amount):
    assert parse_duration(format_duration(amount)) == pytest.approx(amount, rel=0.006)
    assert parse_bandwidth(format_bandwidth(amount * 1e3)) == pytest.approx(amount * 1e3, rel=0.006)
    assert parse_size(format_size(amount + 1000)) == pytest.approx(amount + 1000, rel=0.006)
