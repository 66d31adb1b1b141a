"""Encodes TensorBoard records as bytes: scalars by epoch, and the sessions of the HParams tab.

This is the only module that uses TensorBoard, and it imports no part of it that would import TensorFlow.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import struct_pb2
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.text import metadata as text_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from sweep.events import EpochReported, Params, Status, TrialEnded, TrialStarted, Value, is_number
from sweep.space.domains import (
    Categorical,
    Domain,
    IntUniform,
    LogUniform,
    Range,
    Uniform,
    key,
    list_choices,
)
from sweep.store.columns import column_of_measure
from sweep.text import encodable

_STATUS = {
    Status.COMPLETED: api_pb2.STATUS_SUCCESS,
    Status.INFEASIBLE: api_pb2.STATUS_SUCCESS,
    Status.PRUNED: api_pb2.STATUS_UNKNOWN,  # same as a running trial: neither finished nor failed
    Status.DIVERGED: api_pb2.STATUS_FAILURE,
    Status.OOM: api_pb2.STATUS_FAILURE,
    Status.FAILED: api_pb2.STATUS_FAILURE,
}


def encode_experiment(
    domains: Mapping[str, Domain | None], example: Params, metrics: Sequence[str], started: float
) -> bytes:
    """Return the content of the file that declares metrics and parameters for the HParams tab.

    ``domains`` has the domains of all parameters by name, None where unknown. If a domain is neither a range nor a
    choice, the type is that of the parameter's value in ``example``, the parameters of some trial, or text if it lacks
    the parameter. ``metrics`` has the names of the metrics. ``started`` is the start of the first trial, in seconds
    since 1970.
    """
    made = api_pb2.Experiment(
        time_created_secs=started,
        hparam_infos=[
            _make_hparam_info(name, domain, example.get(name)) for name, domain in domains.items()
        ],
        metric_infos=[
            api_pb2.MetricInfo(name=api_pb2.MetricName(tag=encodable(metric))) for metric in metrics
        ],
    )
    data = plugin_data_pb2.HParamsPluginData(experiment=made)
    return _encode_file_version(started) + _encode_event(
        started, 0, [_make_hparams_value(metadata.EXPERIMENT_TAG, data)]
    )


def encode_start(event: TrialStarted, domains: Mapping[str, Domain | None], group: str) -> bytes:
    """Return the records that a trial's file begins with: the version of the format, and the trial's parameters.

    ``domains`` has the domains of parameters by name, None where unknown; names that the trial has no value for are
    left out, as are parameters of the trial that ``domains`` lacks. ``group`` is the name under which TensorBoard's
    page of hyperparameters shows the trial.
    """
    info = plugin_data_pb2.SessionStartInfo(group_name=group, start_time_secs=event.time)
    for name, domain in domains.items():
        if name in event.params:
            _set_value(
                info.hparams[encodable(name)],
                event.params[name],
                _choose_type(domain, event.params[name]),
            )
    data = plugin_data_pb2.HParamsPluginData(session_start_info=info)
    return _encode_file_version(event.time) + _encode_event(
        event.time, 0, [_make_hparams_value(metadata.SESSION_START_INFO_TAG, data)]
    )


def encode_epoch(event: EpochReported) -> bytes:
    """Return a record with the scalars of one epoch, whose number is the step.

    They are the metrics, and under names with the prefix ``run/`` all other values, such as times, that are not None.
    If a metric has such a name, it takes its place. Numbers too large for 32 bits become infinite.
    """
    others: dict[str, float | None] = {
        "time_s": event.time_s,
        "learning_rate": event.learning_rate,
        "examples_per_s": event.examples_per_s,
        **{column_of_measure(name): value for name, value in event.measures.items()},
    }
    scalars: dict[str, float] = {}
    for name, measured in others.items():
        if measured is not None:
            scalars[f"run/{name}"] = measured
    scalars |= event.metrics
    values = []
    for tag, number in scalars.items():
        values.append(summary_pb2.Summary.Value(tag=encodable(tag), simple_value=_float32(number)))
    return _encode_event(event.time, event.epoch, values)


def encode_end(event: TrialEnded, epochs: int) -> bytes:
    """Return the last record of a trial's file, at step ``epochs``, the trial's last epoch.

    It has the status for the HParams tab, and the status with the reason, if there is one, for the Text tab. Raises
    KeyError if the status is that of an interruption, which is no end.
    """
    info = plugin_data_pb2.SessionEndInfo(status=_STATUS[event.status], end_time_secs=event.time)
    data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
    words = f"{event.status}"
    if event.reason:
        words += f": {event.reason}"
    text = summary_pb2.Summary.Value(
        tag="status",
        metadata=text_metadata.create_summary_metadata("status", ""),
        tensor=tensor_pb2.TensorProto(
            dtype=types_pb2.DT_STRING,
            tensor_shape=tensor_shape_pb2.TensorShapeProto(
                dim=[tensor_shape_pb2.TensorShapeProto.Dim(size=1)]
            ),
            string_val=[encodable(words).encode()],
        ),
    )
    return _encode_event(
        event.time, epochs, [_make_hparams_value(metadata.SESSION_END_INFO_TAG, data), text]
    )


def _encode_file_version(time: float) -> bytes:
    return _frame_record(event_pb2.Event(wall_time=time, file_version="brain.Event:2"))


def _encode_event(time: float, step: int, values: Iterable[Any]) -> bytes:
    return _frame_record(
        event_pb2.Event(wall_time=time, step=step, summary=summary_pb2.Summary(value=values))
    )


def _frame_record(event: Any) -> bytes:
    """Return an ``Event`` of TensorBoard encoded as a record with its length and checksums."""
    file = io.BytesIO()
    RecordWriter(file).write(event.SerializeToString(deterministic=True))
    return file.getvalue()


def _make_hparams_value(tag: str, data: Any) -> Any:
    """Return a value of a summary that has ``data``, a message of the HParams tab, whose version is set here."""
    data.version = metadata.PLUGIN_DATA_VERSION
    # the package's own function does not serialize deterministically
    content = data.SerializeToString(deterministic=True)
    plugin = summary_pb2.SummaryMetadata.PluginData(
        plugin_name=metadata.PLUGIN_NAME, content=content
    )
    described = summary_pb2.SummaryMetadata(plugin_data=plugin)
    return summary_pb2.Summary.Value(tag=tag, metadata=described, tensor=metadata.NULL_TENSOR)


def _make_hparam_info(name: str, domain: Domain | None, example: Value) -> Any:
    """Return the declaration of a parameter: its name, its type and, if they are known, its choices or bounds.

    ``example`` is one of its values, for `_choose_type`.
    """
    kind = _choose_type(domain, example)
    info = api_pb2.HParamInfo(name=encodable(name), type=kind)
    match domain:
        case Categorical():
            for value in list_choices(domain) or ():
                _set_value(info.domain_discrete.values.add(), value, kind)
        case Uniform(low, high) | LogUniform(low, high) | IntUniform(low, high):
            info.domain_interval.min_value = low
            info.domain_interval.max_value = high
    return info  # without a domain if that has no bounds, or is unknown


def _choose_type(domain: Domain | None, example: Value) -> int:
    """Return the HParams type of a parameter: boolean or number if all of its values are, otherwise string.

    The values are those of the domain. If that is neither a range nor a choice, or is unknown, only the value
    ``example`` counts.
    """
    if isinstance(domain, Range):
        return int(api_pb2.DATA_TYPE_FLOAT64)
    if isinstance(domain, Categorical):
        values = list_choices(domain) or ()
    else:
        values = (example,)
    if all(isinstance(value, bool) for value in values):
        return int(api_pb2.DATA_TYPE_BOOL)
    return int(
        api_pb2.DATA_TYPE_FLOAT64 if all(map(is_number, values)) else api_pb2.DATA_TYPE_STRING
    )


def _set_value(target: struct_pb2.Value, value: Value, kind: int) -> None:
    """Put a value into ``target`` as the HParams type ``kind``, or as a text if it is not of that type."""
    if kind == api_pb2.DATA_TYPE_BOOL and isinstance(value, bool):
        target.bool_value = value
    elif kind == api_pb2.DATA_TYPE_FLOAT64 and is_number(value):
        target.number_value = float(value)
    else:
        target.string_value = encodable(value if isinstance(value, str) else key(value))


def _float32(number: float) -> float:
    """Return a number as TensorBoard stores it: a number too large for 32 bits becomes infinite, with its sign."""
    if not math.isfinite(number) or abs(number) < 3.4e38:
        return number
    return math.copysign(math.inf, number)
