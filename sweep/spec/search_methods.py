"""The search methods: one table of their names, of what each can do, and of where its searcher is.

The keys and messages of the sweep file, its JSON Schema, plans, the runner, the documentation and the conformance tests
take from it what they know of methods. A new method is a row here and a module in `sweep.searchers`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sweep.space import Space


@dataclass(frozen=True, slots=True)
class Need:
    """A condition on the space that a method requires, its description, and a hint for spaces that do not meet it."""

    what: str
    is_met: Callable[[Space], bool]
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A row in the table of search methods.

    ``searcher`` is the ``module:Name`` of the class or function that creates its searcher (`sweep.searchers.Searcher`).
    It is imported only when a sweep uses the method, and called with

    - ``(space, objectives, seed)`` if the method learns, as a searcher of the user's own is;
    - ``(space, seed, first)`` if it does not, where ``first`` are the points of `start_with`, to be suggested first;
    - ``(space, objective, seed, rules, first)`` if it is a population, where ``rules`` is a `PopulationRules`.
    """

    name: str
    chooses: str  # how it chooses configurations, for its row in docs/sweep_file.md
    searcher: str = ""  # empty for auto
    # from the results of trials, and so from earlier sweeps (`warm_start`) as well
    learns: bool = False
    several_objectives: bool = True
    uses_prior: bool = False
    # tries every combination of the values, of which there must be finitely many
    enumerates: bool = False
    # its trials are members of a population, which the block `population` describes
    population: bool = False
    # copies in its population change only numbers that have a range
    moves_numbers_only: bool = False
    need: Need | None = None
    same_as: str = ""  # the name of the method that this is another name of

    @property
    def is_own(self) -> bool:
        """Whether the method is a searcher of the user's own, named as ``module:Name``."""
        return ":" in self.name

    @property
    def is_standalone(self) -> bool:
        """Whether it is a method of sweep whose trials train independently of each other; False for ``auto``."""
        return bool(self.searcher) and not self.population and not self.is_own

    def load_searcher(self) -> Callable[..., Any]:
        """Import and return the class or function that creates the searcher.

        Raises ImportError or AttributeError if it does not exist, and ValueError for ``auto``, which has none. Errors
        of the imported module are passed on.
        """
        made: Callable[..., Any] = pkgutil.resolve_name(self.searcher)
        return made


def _has_adaptable_parameter(space: Space) -> bool:
    """Return whether the space has a parameter with a range of several numbers that every trial has."""
    return any(parameter.adaptable for parameter in space.parameters)


AUTO = "auto"
"""The name by which a sweep file leaves the method to `sweep.spec.automatic`."""

_TPE = Method(
    name="tpe",
    chooses="by densities of good and poor values; what `bayes` means here",
    searcher="sweep.searchers.optuna_search:tpe_search",
    learns=True,
    uses_prior=True,
)

_ROWS = (
    Method(
        name=AUTO,
        chooses="[the method and the rule](#methods) that suit the file; the default",
        learns=True,
        uses_prior=True,
    ),
    Method(
        name="grid",
        chooses="every combination once, in the order of the file; a range needs `count`",
        searcher="sweep.searchers.points:grid_search",
        enumerates=True,
    ),
    Method(
        name="random",
        chooses="independent draws",
        searcher="sweep.searchers.points:random_search",
        uses_prior=True,
    ),
    Method(
        name="sobol",
        chooses="draws that cover the space evenly",
        searcher="sweep.searchers.points:sobol_search",
    ),
    _TPE,
    replace(_TPE, name="bayes", chooses="the same as tpe", same_as="tpe"),
    Method(
        name="gp",
        chooses="by Gaussian processes of how well trials end, which learn from whole trials and from those that "
        "[pause](pausing.md) or are stopped",
        searcher="sweep.searchers.gp_search:GaussianProcessSearcher",
        learns=True,
        several_objectives=False,
        uses_prior=True,
    ),
    Method(
        name="cmaes",
        chooses="by an evolution strategy over numbers that are always present, begun anew elsewhere once it has "
        "converged; others are drawn at random",
        searcher="sweep.searchers.cmaes_search:CmaesSearcher",
        learns=True,
        several_objectives=False,
        need=Need("an unconditional numeric parameter", _has_adaptable_parameter, "use tpe"),
    ),
    Method(
        name="nsga2",
        chooses="by a genetic algorithm in generations of 50, for several `metrics`",
        searcher="sweep.searchers.optuna_search:nsga2_search",
        learns=True,
    ),
    Method(
        name="pbt",
        chooses="by [population based training](pbt.md): the worst members are replaced by copies of the best",
        searcher="sweep.searchers.population:Population",
        several_objectives=False,
        uses_prior=True,
        population=True,
    ),
    Method(
        name="pb2",
        chooses="as pbt, and [a model of the past generations](pbt.md#pb2-a-model-moves-the-copies) chooses the "
        "numbers of the copies",
        searcher="sweep.searchers.population:Population",
        several_objectives=False,
        uses_prior=True,
        population=True,
        moves_numbers_only=True,
    ),
)

METHODS = {row.name: row for row in _ROWS}
"""The methods by name, in the order in which messages and the documentation list them."""

SEARCHED = tuple(row for row in _ROWS if row.searcher and not row.same_as)
"""The methods by which sweeps search: all but `auto`, each under one name."""

STANDALONE = tuple(row for row in SEARCHED if row.is_standalone)
"""Those whose trials train independently of each other: all but populations."""


def find_method(name: str) -> Method:
    """Return the method with this name from `METHODS`, or a new one for a searcher of the user's own.

    A name with a colon, ``module:Name``, is that of a searcher of the user's own, which is not imported here; its
    method learns. Raises KeyError for any other name that is not in `METHODS`.
    """
    if ":" in name:
        return Method(name=name, chooses="", searcher=name, learns=True)
    return METHODS[name]
