"""YAML 1.2 rules: what is a number, a text, true or nothing, and where it stands."""

from __future__ import annotations

import tracemalloc

import pytest

from sweep.errors import InputError
from sweep.events import Value
from sweep.spec import make_spec
from sweep.spec.validation import TextPosition
from sweep.spec.yaml_reader import (
    MAX_SIZE_BYTES,
    decode_text,
    parse_document,
    read_value,
    resolve_1_1,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        ("-.5", -0.5),
        ("5.", 5.0),
        ("12", 12),
        ("-3", -3),
        ("010", 10),  # octal in YAML 1.1
        ("0o10", 8),
        ("0xff", 255),
        ("1_000", "1_000"),  # 1000 in YAML 1.1
        ("1:30", "1:30"),  # 90 in YAML 1.1
        ("2024-01-01", "2024-01-01"),  # a date in YAML 1.1
        ("off", "off"),
        ("no", "no"),
        ("yes", "yes"),
        ("True", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("none", "none"),
        ('"1"', "1"),
        ("'true'", "true"),
        ("= lr / 10", "= lr / 10"),
        ("[1, 2.0, a]", [1, 2.0, "a"]),
        ("{a: {b: [null]}}", {"a": {"b": [None]}}),
        (r'"\ud83d\ude00"', "\U0001f600"),  # as JSON writes it
        (
            r'"\ud83d\ude00 \ufffd"',
            "\U0001f600 \ufffd",
        ),  # a replacement character is one like others
    ],
)
def test_reading_values(text: str, value: Value) -> None:
    found = read_value(text, "--set")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *(("yes", True), ("No", False), ("ON", True), ("off", False)),
        *(
            ("1_000", 1000),
            ("-1_0", -10),
            ("010", 8),
            ("1:30", 90),
            ("-1:00:00", -3600),
            ("1_000.5", 1000.5),
        ),
        *(
            ("yEs", None),
            ("y", None),
            ("true", None),
            ("12", None),
            ("1e-4", None),
            ("0", None),
            ("07", 7),
            ("a_1", None),
        ),
    ],
)
def test_what_wandb_reads_otherwise(text: str, other: Value) -> None:
    assert resolve_1_1(text) == other
    plain, quoted = parse_document(f"a: {text}", "s.yaml"), parse_document(f"a: '{text}'", "s.yaml")
    assert list(plain.otherwise.values()) == (
        [] if other in (None, plain.data["a"]) else [(text, other)]
    )
    assert quoted.otherwise == {}


def test_places_count_from_one() -> None:
    document = parse_document("a: 1\nb:\n  - {c: 2}\n", "s.yaml")
    assert document.keys["b",] == TextPosition(2, 1)
    assert document.values["b", 0, "c"] == TextPosition(3, 9)
    assert document.where(TextPosition(3, 9)) == "s.yaml:3:9"


def test_anchors_are_copied_and_merged() -> None:
    data = parse_document(
        "a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: {<<: [{p: 4}, *x]}\nd: *x\n", "s.yaml"
    ).data
    assert data == {
        "a": {"p": 1, "q": 2},
        "b": {"p": 1, "q": 3},
        "c": {"p": 4, "q": 2},
        "d": {"p": 1, "q": 2},
    }
    assert data["a"] is not data["d"]


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert parse_document('"<<": 1', "s.yaml").data == {"<<": 1}


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert decode_text(b"\xef\xbb\xbfa: 1", "s.yaml") == "a: 1"


def test_bytes_that_are_not_utf_8_have_a_place() -> None:
    with pytest.raises(
        InputError, match=r"^s\.yaml:2:4: byte 0xe9 is not UTF-8; save the file as UTF-8$"
    ):
        decode_text("a: 1\nb: é".encode("latin-1"), "s.yaml")
    with pytest.raises(InputError, match=r"^s\.yaml:1:4: byte 0xe9 is not UTF-8"):
        decode_text(b"\xef\xbb\xbfa: \xe9", "s.yaml")


def test_a_file_too_large_is_not_parsed() -> None:
    with pytest.raises(InputError, match="too large for a sweep file"):
        parse_document("#" * (MAX_SIZE_BYTES + 1), "s.yaml")
    with pytest.raises(InputError, match="too large for a sweep file"):
        decode_text(b"#" * (MAX_SIZE_BYTES + 1), "s.yaml")


def test_a_value_from_the_command_line_has_no_line() -> None:
    with pytest.raises(InputError) as caught:
        read_value("[1", "--set a=[1")
    assert [problem.where for problem in caught.value.problems] == ["--set a=[1"]


def test_merge_keys_expand_within_the_bound_and_its_memory() -> None:
    lines = ["base: &m0 {" + ", ".join(f"k{index}: 1" for index in range(1000)) + "}"]
    lines += [f"m{level}: &m{level} {{<<: *m{level - 1}, x{level}: 1}}" for level in range(1, 3000)]
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="merge keys expand to more than 100,000 values"):
            parse_document("\n".join(lines), "s.yaml")
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2**63, "9223372036854775808 does not fit into 64 bits"),
        ("a\ud800", "half of a surrogate pair in a text"),
    ],
)
def test_what_no_file_can_hold_is_refused_from_python_as_well(
    value: int | str, message: str
) -> None:
    given = {"trainable": "m:T", "method": "grid", "parameters": {"x": {"values": [value, 1]}}}
    with pytest.raises(InputError, match=f"api: parameters.x.values\\[0\\]: {message}"):
        make_spec(given, "api")
