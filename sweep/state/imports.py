"""Imports the author's modules, each under a seed of its own that is the same in every process, and notifies listeners.

Draws of an installed library during its import leave no trace, because it may have been imported earlier elsewhere.
"""

from __future__ import annotations

import importlib.machinery
import random
import sys
import types
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.random  # NumPy imports it lazily, which must not happen inside a finder

from sweep.author_code import is_author_file
from sweep.state import settings
from sweep.state.draws import seeding_entropy

_OWN_PACKAGES = ("trainables", "sweep")
_CONTEXT_MODULE = "tensorflow.python.eager.context"
Listener = Callable[[types.ModuleType], None]


class _SeedingFinder:
    """Finds what the other import finders find, and seeds random generators while a module's code runs."""

    def __init__(self) -> None:
        self.users = 0
        self.seed: int | None = None  # seed for imports; None: do not seed
        # packages of trainables, which are the author's even if installed
        self.author_packages: set[str] = set()
        self.listeners: list[Listener] = []
        # these adopt settings of libraries
        self.adopting: weakref.WeakSet[settings.SavedSettings] = weakref.WeakSet()
        # seed under which a module was imported, if it drew numbers
        self.drawing_seeds: dict[str, int] = {}
        self.unseeded_lines: dict[str, str] = {}  # line that drew from the machine, by module
        # running modules: seed, restoring functions
        self._running: list[tuple[int, list[Callable[[], None]]]] = []
        self._library_depth = 0  # depth of nested imports of libraries

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Return the spec that the first other finder returns; None if none finds the module.

        The loader in the spec of a Python source file is changed so that it seeds or restores random generators while
        the module's code runs (`_wrap_loader`). The arguments are those that Python gives to import finders.
        """
        for finder in list(sys.meta_path):
            find: Any = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                spec = None
            else:
                spec = find(name, path, target)
            if spec is not None:
                if isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                    self._wrap_loader(spec)
                return spec
        return None

    def _wrap_loader(self, spec: Any) -> None:
        """Make a spec's loader seed the author's modules while they run, and undo the draws of all others.

        After a module of the author's has run, the loader calls the listeners with it. Sweep's own modules are not the
        author's.
        """
        run = spec.loader.exec_module
        top = spec.name.partition(".")[0]
        is_authors = top not in _OWN_PACKAGES and (
            top in self.author_packages or is_author_file(spec.origin)
        )

        def exec_module(module: types.ModuleType) -> None:
            if not is_authors:
                with self._restoring_generators():
                    run(module)
                return
            with self._seeding(spec.name):
                run(module)
            # a copy, because a listener may be removed meanwhile
            for listener in list(self.listeners):
                listener(module)

        spec.loader.exec_module = exec_module  # only of this loader, which is for this module

    @contextmanager
    def _seeding(self, name: str) -> Iterator[None]:
        """Seed all generators for the import of one of the author's modules inside the block, and restore them.

        These are the global generators of Python, NumPy, TensorFlow and PyTorch. Their seed follows from `seed` and the
        module's ``name``; without `seed`, nothing is done. If the module drew numbers from those of Python or NumPy, or
        made a NumPy generator without a seed, `seed` is recorded in `drawing_seeds`. If it drew from the machine, the
        line is recorded in `unseeded_lines`, and `seed` as well. What an earlier import recorded is forgotten.
        """
        if self.seed is None:
            yield
            return
        self.drawing_seeds.pop(name, None)
        self.unseeded_lines.pop(name, None)
        seed = zlib.crc32(f"{self.seed} {name}".encode())
        before = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        state_at_start = random.getstate(), _read_numpy_state()
        # `_restoring_generators` adds a function to the list if TensorFlow is only imported by this module
        self._running.append((seed, [_seed_tensorflow(seed), _seed_torch(seed)]))
        try:
            with seeding_entropy(seed) as entropy:
                yield
        finally:
            _, restoring_functions = self._running.pop()
            for restore in restoring_functions:
                restore()
            # before the generators are restored, since their states tell whether the module has drawn
            if entropy.line:
                self.unseeded_lines[name] = entropy.line
            if (
                entropy.seeds
                or entropy.line
                or state_at_start != (random.getstate(), _read_numpy_state())
            ):
                self.drawing_seeds[name] = self.seed
            random.setstate(before[0])
            np.random.set_state(before[1])

    @contextmanager
    def _restoring_generators(self) -> Iterator[None]:
        """Undo draws of a library that is imported inside the block, and let `adopting` adopt its settings.

        Only draws from the global generators of Python and NumPy are undone. For a library that is imported inside of
        such a block, by another library, nothing more is done. If the block imports TensorFlow while a module of the
        author's runs under a seed, TensorFlow's generators are seeded for that module.
        """
        if self._library_depth:
            yield
            return
        before = random.getstate(), np.random.get_state()
        if self.adopting:
            settings_before = settings.read_settings()
        else:
            settings_before = {}
        had_tensorflow = _has_tensorflow()
        self._library_depth += 1
        try:
            yield
        finally:
            self._library_depth -= 1
            random.setstate(before[0])
            np.random.set_state(before[1])
            for saved in list(self.adopting):
                saved.adopt_changes(settings_before)
            # `_seeding` could not seed TensorFlow when the author's module began, because it was not imported yet
            if self._running and not had_tensorflow:
                seed, restoring_functions = self._running[-1]
                restoring_functions.append(_seed_tensorflow(seed))


def _has_tensorflow() -> bool:
    return hasattr(sys.modules.get(_CONTEXT_MODULE), "context")


def _read_numpy_state() -> bytes:
    state: Any = np.random.get_state(legacy=False)
    return bytes(state["state"]["key"].tobytes()) + str(state["state"]["pos"]).encode()


def _seed_tensorflow(seed: int) -> Callable[[], None]:
    """Seed TensorFlow if it is imported; return a function that restores its earlier state.

    The function does nothing if TensorFlow was not imported. `tf.random.set_seed` could set the seed, but no public
    function returns the earlier one.
    """
    if not _has_tensorflow():
        return lambda: None
    module: Any = sys.modules[_CONTEXT_MODULE]
    eager = module.context()
    # the global seed, and the generator that gives each operation a seed of its own
    before = eager._seed, getattr(eager, "_rng", None)

    def restore() -> None:
        eager._seed, eager._rng = before

    eager._seed = seed
    eager._rng = random.Random(seed)
    return restore


def _seed_torch(seed: int) -> Callable[[], None]:
    """Seed PyTorch if it is imported; return a function that restores the earlier state of its generator on the CPU.

    Generators on other devices are seeded, too, but not restored. The function does nothing if PyTorch was not
    imported.
    """
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "manual_seed"):
        return lambda: None
    before = torch.get_rng_state()
    torch.manual_seed(seed)
    return lambda: torch.set_rng_state(before)


_finder = _SeedingFinder()


def add_import_listener(listener: Listener) -> Callable[[], None]:
    """Call a listener with each of the author's modules after its import, from now on.

    Modules that are imported already are not imported again, and so not given to it. Returns a function that removes
    the listener, to be called once.
    """
    _finder.listeners.append(listener)
    _install_finder()

    def stop() -> None:
        _finder.listeners.remove(listener)
        _release_finder()

    return stop


@contextmanager
def listen_to_imports(listener: Listener) -> Iterator[None]:
    """Call a listener with each of the author's modules that is imported inside the block."""
    stop = add_import_listener(listener)
    try:
        yield
    finally:
        stop()


def adopt_library_settings(saved: settings.SavedSettings) -> settings.SavedSettings:
    """Let ``saved`` adopt the settings that installed libraries change while they are imported; return ``saved``.

    It does so for imports while there is a listener or while imports are seeded, for as long as ``saved`` exists. Only
    a weak reference to ``saved`` is kept.
    """
    _finder.adopting.add(saved)
    return saved


def start_seeding(number: int) -> Callable[[], None]:
    """Seed random generators while the author's modules are imported; return a function that stops this.

    ``number`` is the seed, from which each module's own follows. The function must be called once; it restores the seed
    that was in use before. Several calls must be stopped in reverse order.
    """
    before, _finder.seed = _finder.seed, number
    _install_finder()

    def stop() -> None:
        _finder.seed = before
        _release_finder()

    return stop


def treat_as_author_package(module: str) -> None:
    """Treat the top-level package of a module, given by its dotted name, as the author's code from now on.

    This also holds for an installed package, but not for sweep's own. Modules that are imported already are not
    affected.
    """
    _finder.author_packages.add(module.partition(".")[0])


@contextmanager
def seed_imports(number: int) -> Iterator[None]:
    """Seed random generators while the author's modules are imported inside the block.

    ``number`` is the seed, as in `start_seeding`; after the block, the one that was in use before holds again.
    """
    stop = start_seeding(number)
    try:
        yield
    finally:
        stop()


def _install_finder() -> None:
    _finder.users += 1
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _release_finder() -> None:
    _finder.users -= 1
    if not _finder.users and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def list_drawing_modules() -> dict[str, int]:
    """Return the loaded modules of the author that drew numbers while they were imported.

    The result maps their names to the seeds of these imports, as they were given to `start_seeding`. Only imports that
    were seeded are known. Draws from TensorFlow and PyTorch are not noticed.
    """
    return {name: seed for name, seed in _finder.drawing_seeds.items() if name in sys.modules}


def explain_import_difference(number: int) -> str:
    """Return why a loaded module of the author may differ from one imported under the seed ``number``; "" if none may.

    A module may differ if it drew from the machine's entropy at its import, or drew numbers under another seed. Only
    imports that were seeded (`start_seeding`) are known. If several modules may differ, one is named, of those that
    drew from the machine if there are any.
    """
    for name, line in _finder.unseeded_lines.items():
        if name in sys.modules:
            return f"{line} draws from the machine when {name} is imported"
    for name, other in list_drawing_modules().items():
        if other != number:
            return f"{name} draws numbers when it is imported, and was imported under seed {other} in this process"
    return ""
