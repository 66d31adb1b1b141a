"""What Python, NumPy, Keras, TensorFlow and torch hold for a whole process: read, and put back.

A library is asked only where it has been imported, by its public functions.
"""

from __future__ import annotations

import locale
import logging
import os
import socket
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

with suppress(ImportError):  # a system without limits
    import resource  # noqa: F401 - looked up by name

Values: TypeAlias = "dict[str, Any]"
"""Of settings, by what they are called."""


class Setting(NamedTuple):
    """How a setting is read and written."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    library: str = ""  # that must have been imported


def _resources() -> list[int]:
    resource = sys.modules.get("resource")
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return sorted({getattr(resource, name) for name in names})


def _limits() -> dict[int, tuple[int, int]]:
    resource: Any = sys.modules["resource"]
    found = {}
    for number in _resources():
        with suppress(OSError, ValueError):  # known to Python, not to this system
            found[number] = resource.getrlimit(number)
    return found


def _set_limits(limits: Mapping[int, tuple[int, int]]) -> None:
    resource: Any = sys.modules["resource"]
    for number, limit in limits.items():
        if resource.getrlimit(number) != limit:
            resource.setrlimit(number, limit)


_STATUS = Path("/proc/self/status")


def _umask() -> int:
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    present = os.umask(0o077)
    os.umask(present)
    return present


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in {*os.environ} - {*variables}:
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _set_path(entries: list[str]) -> None:
    sys.path[:] = entries


def _set_arguments(arguments: list[str]) -> None:
    sys.argv[:] = arguments


def _set_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()  # which also lets all modules forget what they have decided by the old ones
    warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever typeshed says


_Logger: TypeAlias = "tuple[int, list[logging.Handler], list[Any], bool, bool]"
_NEW: _Logger = (logging.NOTSET, [], [], True, False)


def _loggers() -> dict[str, logging.Logger]:
    named = {
        name: one for name, one in list(logging.root.manager.loggerDict.items()) if isinstance(one, logging.Logger)
    }
    return {"": logging.root, **named}


def _logging() -> tuple[int, dict[str, _Logger]]:
    found = {
        name: (one.level, list(one.handlers), list(one.filters), one.propagate, one.disabled)
        for name, one in _loggers().items()
    }
    return logging.root.manager.disable, {name: one for name, one in found.items() if one != _NEW}


def _set_logging(configured: tuple[int, dict[str, _Logger]]) -> None:
    disabled, known = configured
    logging.disable(disabled)
    for name, logger in _loggers().items():
        level, handlers, filters, propagate, is_disabled = known.get(name, _NEW)
        logger.setLevel(level)
        logger.handlers[:], logger.filters[:] = handlers, filters
        logger.propagate, logger.disabled = propagate, is_disabled


def _set_locale(name: str) -> None:
    locale.setlocale(locale.LC_ALL, name)


def _of(library: str, *names: str) -> Any:
    found: Any = sys.modules[library]
    for name in names:
        found = getattr(found, name)
    return found


def _switch(library: str, read: str, write: str) -> Setting:
    """Return a setting that a library has two functions for, named with dots."""
    return Setting(
        lambda: _of(library, *read.split("."))(), lambda value: _of(library, *write.split("."))(value), library
    )


def _set_numpy_errors(kinds: Mapping[str, Any]) -> None:
    _of("numpy").seterr(**kinds)


SETTINGS: dict[str, Setting] = {
    "os.environ": Setting(lambda: dict(os.environ), _set_environment),
    "sys.path": Setting(lambda: list(sys.path), _set_path),
    "sys.argv": Setting(lambda: list(sys.argv), _set_arguments),
    "the recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "the umask": Setting(_umask, os.umask),
    "resource limits": Setting(_limits, _set_limits, "resource"),
    "the filters of warnings": Setting(lambda: list(warnings.filters), _set_filters),
    "the configuration of logging": Setting(_logging, _set_logging),
    "the locale": Setting(lambda: locale.setlocale(locale.LC_ALL), _set_locale),
    "the default timeout of sockets": Setting(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "np.seterr": Setting(lambda: _of("numpy").geterr(), _set_numpy_errors, "numpy"),
    "keras.config.floatx": _switch("keras", "config.floatx", "config.set_floatx"),
    "keras.config.epsilon": _switch("keras", "config.epsilon", "config.set_epsilon"),
    "keras.config.image_data_format": _switch("keras", "config.image_data_format", "config.set_image_data_format"),
    "keras.config.dtype_policy": _switch("keras", "config.dtype_policy", "config.set_dtype_policy"),
    "tf.config.run_functions_eagerly": _switch(
        "tensorflow", "config.functions_run_eagerly", "config.run_functions_eagerly"
    ),
    "tf.config.set_soft_device_placement": _switch(
        "tensorflow", "config.get_soft_device_placement", "config.set_soft_device_placement"
    ),
    "tf.config.experimental.enable_tensor_float_32_execution": _switch(
        "tensorflow",
        "config.experimental.tensor_float_32_execution_enabled",
        "config.experimental.enable_tensor_float_32_execution",
    ),
    "torch.set_default_dtype": _switch("torch", "get_default_dtype", "set_default_dtype"),
    "torch.set_num_threads": _switch("torch", "get_num_threads", "set_num_threads"),
    "torch.use_deterministic_algorithms": _switch(
        "torch", "are_deterministic_algorithms_enabled", "use_deterministic_algorithms"
    ),
}
"""All that is put back after a trial, beside the current folder and the standard outputs."""


OF_LIBRARIES = tuple(name for name, one in SETTINGS.items() if one.library not in ("", "resource"))
"""Those that numbers may depend on, and that only somebody's call changes."""


def read(names: tuple[str, ...] = tuple(SETTINGS)) -> Values:
    """Return these settings as they are, those of libraries that were imported."""
    found = {}
    for name in names:
        setting = SETTINGS[name]
        if not setting.library or setting.library in sys.modules:
            with suppress(AttributeError):  # while the library is being imported
                found[name] = setting.read()
    return found


def changed(before: Values, after: Values) -> Values:
    """Return what is another now, of what was there before."""
    return {name: value for name, value in after.items() if name in before and before[name] != value}


def write(values: Values) -> list[str]:
    """Let these settings be so where they are not; return the names of those that resist, as lowered hard limits."""
    resisting = []
    for name, value in changed(read(tuple(values)), values).items():
        try:
            SETTINGS[name].write(value)
        except (OSError, ValueError, RuntimeError) as error:
            resisting.append(f"{name} ({error})")
    return resisting


def _taken_over(start: Any, before: Any, after: Any) -> Any:
    """Return what a setting begins with once a library has changed it from one value to another.

    Of a mapping these are the library's entries alone: a trial may have set others before it imported the library.
    """
    if not isinstance(start, dict):
        return after
    new = {name: value for name, value in after.items() if name not in before or before[name] != value}
    return {**start, **new}


class Kept:
    """The settings of this process as its trials find them: as they were before the first one.

    What a library sets when a trial imports it is its own, and stays (`imported`).
    """

    def __init__(self) -> None:
        self._start = read()

    def again(self) -> None:
        """Take the present settings for those that trials find."""
        self._start = read()

    def imported(self, before: Values) -> None:
        """Take over what has changed since, which the import of an installed library has done."""
        after = read()
        self._start |= {name: value for name, value in after.items() if name not in before}
        for name, value in changed(before, after).items():
            self._start[name] = _taken_over(self._start[name], before[name], value)

    def own(self) -> Values:
        """Return what the present trial has set."""
        return changed(self._start, read())

    def put_back(self) -> list[str]:
        """Let all be as trials find it; return what resists."""
        return write(self._start)
