"""Process-wide settings of Python, NumPy, Keras, TensorFlow and PyTorch: read and restored.

Libraries are only used if they have been imported, and only through public functions.
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

with suppress(ImportError):  # a system without resource limits
    import resource  # noqa: F401  # looked up by name

Values: TypeAlias = "dict[str, Any]"
"""Settings by name."""


class Setting(NamedTuple):
    """A process-wide setting: the functions that read and write it, and the library that it belongs to."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    library: str = ""  # must have been imported


def _list_resources() -> list[int]:
    resource = sys.modules.get("resource")
    names = []
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            names.append(name)
    # each number once, though a resource may have several names
    return sorted({getattr(resource, name) for name in names})


def _read_resource_limits() -> dict[int, tuple[int, int]]:
    resource: Any = sys.modules["resource"]
    limits = {}
    for number in _list_resources():
        with suppress(OSError, ValueError):  # known to Python but not to this system
            limits[number] = resource.getrlimit(number)
    return limits


def _set_limits(limits: Mapping[int, tuple[int, int]]) -> None:
    resource: Any = sys.modules["resource"]
    for number, limit in limits.items():
        if resource.getrlimit(number) != limit:
            resource.setrlimit(number, limit)


_STATUS = Path("/proc/self/status")


def _read_umask() -> int:
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    # Without /proc it can only be read by setting it. A file that another thread creates meanwhile is not too open.
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
    warnings.resetwarnings()  # also clears what modules have remembered about the old filters
    warnings.filters[:] = filters  # type: ignore[index]  # a list, unlike in typeshed


_Logger: TypeAlias = "tuple[int, list[logging.Handler], list[Any], bool, bool]"
"""A logger's level, handlers and filters, whether it propagates to its parent, and whether it is disabled."""
_UNCONFIGURED: _Logger = (logging.NOTSET, [], [], True, False)


def _list_loggers() -> dict[str, logging.Logger]:
    named = {}
    for name, one in list(logging.root.manager.loggerDict.items()):
        if isinstance(one, logging.Logger):
            named[name] = one
    return {"": logging.root, **named}


def _read_logging() -> tuple[int, dict[str, _Logger]]:
    configured = {}
    for name, logger in _list_loggers().items():
        configured[name] = (
            logger.level,
            list(logger.handlers),
            list(logger.filters),
            logger.propagate,
            logger.disabled,
        )
    # loggers that nobody has configured are left out, because `_set_logging` resets all that are not recorded
    return logging.root.manager.disable, {
        name: logger for name, logger in configured.items() if logger != _UNCONFIGURED
    }


def _set_logging(configured: tuple[int, dict[str, _Logger]]) -> None:
    disabled_level, recorded = configured  # messages up to this level are disabled for all loggers
    logging.disable(disabled_level)
    for name, logger in _list_loggers().items():
        # a new logger cannot be deleted, so it is made as if nobody had configured it
        level, handlers, filters, propagate, is_disabled = recorded.get(name, _UNCONFIGURED)
        logger.setLevel(level)
        logger.handlers[:], logger.filters[:] = handlers, filters
        logger.propagate = propagate
        logger.disabled = is_disabled


def _set_locale(name: str) -> None:
    locale.setlocale(locale.LC_ALL, name)


def _look_up(library: str, *names: str) -> Any:
    value: Any = sys.modules[library]
    for name in names:
        value = getattr(value, name)
    return value


def _make_setting(library: str, read: str, write: str) -> Setting:
    """Return a setting for which a library has two functions, given by dotted names.

    ``read`` names the function that returns the value, ``write`` the one that takes it.
    """
    # looked up at each call, because the library may be imported later
    return Setting(
        lambda: _look_up(library, *read.split("."))(),
        lambda value: _look_up(library, *write.split("."))(value),
        library,
    )


def _set_numpy_errors(kinds: Mapping[str, Any]) -> None:
    _look_up("numpy").seterr(**kinds)


SETTINGS: dict[str, Setting] = {
    "os.environ": Setting(lambda: dict(os.environ), _set_environment),
    "sys.path": Setting(lambda: list(sys.path), _set_path),
    "sys.argv": Setting(lambda: list(sys.argv), _set_arguments),
    "the recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit),
    "the umask": Setting(_read_umask, os.umask),
    "resource limits": Setting(_read_resource_limits, _set_limits, "resource"),
    "the filters of warnings": Setting(lambda: list(warnings.filters), _set_filters),
    "the configuration of logging": Setting(_read_logging, _set_logging),
    "the locale": Setting(lambda: locale.setlocale(locale.LC_ALL), _set_locale),
    "the default timeout of sockets": Setting(socket.getdefaulttimeout, socket.setdefaulttimeout),
    "np.seterr": Setting(lambda: _look_up("numpy").geterr(), _set_numpy_errors, "numpy"),
    "keras.config.floatx": _make_setting("keras", "config.floatx", "config.set_floatx"),
    "keras.config.epsilon": _make_setting("keras", "config.epsilon", "config.set_epsilon"),
    "keras.config.image_data_format": _make_setting(
        "keras", "config.image_data_format", "config.set_image_data_format"
    ),
    "keras.config.dtype_policy": _make_setting(
        "keras", "config.dtype_policy", "config.set_dtype_policy"
    ),
    "tf.config.run_functions_eagerly": _make_setting(
        "tensorflow", "config.functions_run_eagerly", "config.run_functions_eagerly"
    ),
    "tf.config.set_soft_device_placement": _make_setting(
        "tensorflow", "config.get_soft_device_placement", "config.set_soft_device_placement"
    ),
    "tf.config.experimental.enable_tensor_float_32_execution": _make_setting(
        "tensorflow",
        "config.experimental.tensor_float_32_execution_enabled",
        "config.experimental.enable_tensor_float_32_execution",
    ),
    "torch.set_default_dtype": _make_setting("torch", "get_default_dtype", "set_default_dtype"),
    "torch.set_num_threads": _make_setting("torch", "get_num_threads", "set_num_threads"),
    "torch.use_deterministic_algorithms": _make_setting(
        "torch", "are_deterministic_algorithms_enabled", "use_deterministic_algorithms"
    ),
}
"""Everything that is restored after a trial, besides the working folder and the standard streams."""


OF_LIBRARIES = tuple(name for name, one in SETTINGS.items() if one.library not in ("", "resource"))
"""Settings that numbers may depend on and that change only by an explicit call."""


def read_settings(names: tuple[str, ...] = tuple(SETTINGS)) -> Values:
    """Return the present values of the settings ``names``, by default of all.

    Settings whose library is not imported are left out. Raises KeyError for a name that is not in `SETTINGS`.
    """
    values = {}
    for name in names:
        setting = SETTINGS[name]
        if not setting.library or setting.library in sys.modules:
            with suppress(AttributeError):  # while the library is being imported
                values[name] = setting.read()
    return values


def find_changed_settings(before: Values, after: Values) -> Values:
    """Return the settings whose values in ``before`` and ``after`` differ, with those in ``after``.

    Settings that only one of them has are left out.
    """
    changed = {}
    for name, value in after.items():
        if name in before and before[name] != value:
            changed[name] = value
    return changed


def apply_settings(values: Values) -> list[str]:
    """Set each setting in ``values`` that has another value now; return a message for each that cannot be set.

    A message has the setting's name and the error. For example, a hard limit of the system that was lowered cannot be
    raised again. Settings whose library is not imported are left out. Raises KeyError for a name that is not in
    `SETTINGS`.
    """
    resisting = []
    for name, value in find_changed_settings(read_settings(tuple(values)), values).items():
        try:
            SETTINGS[name].write(value)
        except (OSError, ValueError, RuntimeError) as error:
            resisting.append(f"{name} ({error})")
    return resisting


def _merge_library_change(start: Any, before: Any, after: Any) -> Any:
    """Return the initial value of a setting for later trials, after the import of a library has changed it.

    ``start`` is its initial value so far, ``before`` and ``after`` are its values before and after the import. If the
    setting is a mapping, only the entries that the library added or changed are taken over, because the trial may have
    set others before the import; entries that it deleted stay. Otherwise the result is ``after``.
    """
    if not isinstance(start, dict):
        return after
    changed_entries = {}
    for name, value in after.items():
        if name not in before or before[name] != value:
            changed_entries[name] = value
    return {**start, **changed_entries}


class SavedSettings:
    """The settings of this process before its first trial, which `restore` sets again after a trial.

    Settings that a library changes while it is imported become initial settings, too (`adopt_changes`).
    """

    def __init__(self) -> None:
        self._start = read_settings()

    def save_present(self) -> None:
        """Make the present settings the initial ones."""
        self._start = read_settings()

    def adopt_changes(self, before: Values) -> None:
        """Make the settings that an imported library has changed since ``before`` initial settings.

        ``before`` are all settings that could be read before the import (`read_settings`). Settings that can be read
        only since then become initial ones with their present values.
        """
        after = read_settings()
        self._start |= {name: value for name, value in after.items() if name not in before}
        for name, value in find_changed_settings(before, after).items():
            # a setting that became readable after the start was not an initial one until now
            start = self._start.get(name, before[name])
            self._start[name] = _merge_library_change(start, before[name], value)

    def find_changed(self) -> Values:
        """Return the settings that differ from the initial ones, with their present values."""
        return find_changed_settings(self._start, read_settings())

    def restore(self) -> list[str]:
        """Restore all settings that differ from the initial ones; return a message for each that cannot be restored.

        Settings without an initial value, because their library was not imported at the start, stay as they are.
        """
        return apply_settings(self._start)
