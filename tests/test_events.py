import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import StoreError
from sweep.events import (
    FORMAT,
    ConfigurationsEnqueued,
    EpochReported,
    Facts,
    NoteWritten,
    NotJson,
    SessionEnded,
    SessionStarted,
    Status,
    SweepChanged,
    TrialEnded,
    TrialStarred,
    TrialStarted,
    decode,
    describe_status,
    encode,
    is_number,
)

TEXT = st.text() | st.sampled_from(
    ["nan", "inf", "-inf", "\\nan", "\\\\inf", "\\", "NaN", "\ud800"]
)
INTEGERS = st.integers(-(2**63), 2**63)
FLOATS = st.floats()
NUMBERS = st.dictionaries(TEXT, FLOATS, max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FACTS = st.builds(
    Facts,
    started=st.none() | FLOATS,
    node=st.none() | TEXT,
    num_replicas=st.none() | INTEGERS,
    train_s=st.none() | FLOATS,
    overhead_s=NUMBERS,
    checkpoint=st.none() | TEXT,
    extends=st.booleans(),
)
CONFIGURATIONS = st.dictionaries(TEXT, VALUES, max_size=4)
EVENTS = st.one_of(
    st.builds(
        NoteWritten, trial=st.none() | INTEGERS, text=TEXT, request=TEXT, by=TEXT, time=FLOATS
    ),
    st.builds(TrialStarred, trial=INTEGERS, starred=st.booleans(), request=TEXT, time=FLOATS),
    st.builds(
        ConfigurationsEnqueued,
        configurations=st.lists(CONFIGURATIONS, max_size=3).map(tuple),
        request=TEXT,
        by=TEXT,
        time=FLOATS,
    ),
    st.builds(
        SweepChanged,
        settings=CONFIGURATIONS,
        dropped=st.lists(CONFIGURATIONS, max_size=2).map(tuple),
        request=TEXT,
        time=FLOATS,
    ),
    st.builds(SessionStarted, time=FLOATS, resumed=st.booleans(), version=TEXT),
    st.builds(SessionEnded, time=FLOATS, reason=TEXT),
    st.builds(
        TrialStarted,
        trial=INTEGERS,
        trial_id=TEXT,
        params=st.dictionaries(TEXT, VALUES, max_size=4),
        seed=INTEGERS,
        repeat=INTEGERS,
        time=FLOATS,
    ),
    st.builds(
        EpochReported,
        trial=INTEGERS,
        epoch=INTEGERS,
        metrics=NUMBERS,
        time=FLOATS,
        time_s=FLOATS,
        learning_rate=st.none() | FLOATS,
        examples_per_s=st.none() | FLOATS,
        measures=NUMBERS,
        memo=st.none() | TEXT,
    ),
    st.builds(
        TrialEnded,
        trial=INTEGERS,
        status=st.sampled_from(Status),
        reason=TEXT,
        time=FLOATS,
        error=st.none() | TEXT,
        at_target=st.booleans(),
        facts=FACTS,
    ),
)


@given(EVENTS)
def test_every_event_survives_the_round_trip(event):
    line = encode(event)
    back = decode(line)
    assert type(back) is type(event)
    assert repr(back) == repr(event)  # repr and not ==, for NaN


@given(EVENTS)
def test_a_line_is_one_line_of_standard_json(event):
    line = encode(event)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.isascii()
    assert "event" in json.loads(line, parse_constant=refuse)


def test_lines_are_compact_and_name_their_event():
    report = EpochReported(trial=3, epoch=1, metrics={"loss": math.nan}, time=5.0, time_s=0.5)
    assert encode(report) == (
        b'{"event":"epoch_reported","trial":3,"epoch":1,"metrics":{"loss":"nan"},"time":5.0,"time_s":0.5}\n'
    )


def test_parameters_keep_their_order():
    params = {"z": 1, "a": [1, {"b": None}], "m": 1e-4}
    started = TrialStarted(trial=0, trial_id="t", params=params, seed=1, repeat=0, time=0.0)
    back = decode(encode(started))
    assert isinstance(back, TrialStarted)
    assert list(back.params) == ["z", "a", "m"]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (
            {"loss": np.float32(1.5)},
            r"metrics: np.float32\(1.5\) is of type numpy.float32, expected bool, int, float",
        ),
        ({"loss": np.float64(1.5)}, r"numpy.float64, expected .*; convert it with .item\(\)"),
        ({"loss": None}, r"metrics\[...\]: is of type null, expected float"),
        ({"loss": "high"}, "is of type str, expected float"),
        ({"loss": True}, "is of type bool, expected float"),
        ({1: 1.0}, "1 is of type int, expected str"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(metrics, message):
    with pytest.raises(StoreError, match=message):
        encode(EpochReported(trial=0, epoch=1, metrics=metrics, time=0.0, time_s=0.0))


@pytest.mark.parametrize("value", [(1, 2), {1: 2}, {1, 2}, np.int64(3), b"x", object()])
def test_parameters_are_yaml_values(value):
    with pytest.raises(StoreError, match=r"trial_started: params: .* expected"):
        encode(TrialStarted(trial=0, trial_id="t", params={"p": value}, seed=0, repeat=0, time=0.0))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[]", "expected a record, found list"),
        (b"{}", "unknown event None"),
        (
            b'{"event":"trial_stopped"}',
            "unknown event 'trial_stopped'; did you mean 'trial_started'",
        ),
        (b'{"event":"session_ended","time":1.0}', "missing .* reason"),
        (b'{"event":"session_ended","time":1.0,"reason":"x","node":1}', "unknown field node"),
        (
            b'{"event":"session_ended","time":"soon","reason":"x"}',
            "time: is of type str, expected float",
        ),
        (
            b'{"event":"trial_ended","trial":0,"status":"won","reason":"","time":0}',
            "status: Invalid enum value 'won'",
        ),
        (
            b'{"event":"trial_ended","trial":0,"status":"oom","reason":"","time":0,"facts":{"a":1}}',
            "facts: .* field a",
        ),
        (b'{"event":"session_started","time":1.0,"resumed":false,"version":"1"}', "format is None"),
    ],
)
def test_a_foreign_record_says_what_is_wrong(line, message):
    with pytest.raises(StoreError, match=message):
        decode(line)


@pytest.mark.parametrize(
    "line", [b"", b"\n", b'{"event":"ses', b"\0\0\0\n", b'{"a":NaN}', b"\xff\n", b"[" * 9999]
)
def test_a_damaged_record_is_told_from_a_foreign_one(line):
    with pytest.raises(NotJson, match="damaged record"):
        decode(line)


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (Status.PRUNED, "pruned at epoch 2: rank 3 of 3", "pruned"),
        (Status.PRUNED, "stopped on request", "stopped by hand"),
        # the sweep was stopped, and resumes the trial
        (
            Status.INTERRUPTED,
            "stopped on request",
            "interrupted",
        ),
        (Status.INTERRUPTED, "tried again", "failed, tried again"),
        (Status.INTERRUPTED, "ValueError: no; tried again, 1 of 3", "failed, tried again"),
        (Status.FAILED, "ValueError: tried again", "failed"),
    ],
)
def test_a_status_in_words_says_who_ended_the_trial(status, reason, words):
    assert describe_status(status, reason) == words


def test_a_newer_format_is_refused_before_its_fields_are_looked_at():
    line = encode(SessionStarted(time=1.0, resumed=False, version="9.9"))
    newer = line.replace(b'"format":%d' % FORMAT, b'"format":%d,"colour":"red"' % (FORMAT + 1))
    with pytest.raises(
        StoreError, match=r"written by sweep 9.9 in log format 2, expected at most 1"
    ):
        decode(newer)


def test_numbers_are_finite_and_fit_into_floats() -> None:
    for value in (0, -1, 1.5, 10**300):
        assert is_number(value)
    for value in (True, "1", None, math.nan, math.inf, 10**400):
        assert not is_number(value)
