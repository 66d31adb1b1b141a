"""Starting points before the suggestions of a searcher that hears what became of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sweep.events import Event, Params
from sweep.searchers.contract import Searcher
from sweep.searchers.novelty import first_new, uniform_draws, uniform_numbers
from sweep.space import starting
from sweep.space.space import Space
from sweep.store.ledger import TrialState


class Started:
    """Suggests ``first`` in the first trials, and asks ``inner`` from then on."""

    def __init__(self, inner: Searcher, first: Sequence[Params]) -> None:
        self._inner = inner
        self._first = first

    @property
    def foresees(self) -> bool:
        return self._inner.foresees

    def learn(self, past: Iterable[TrialState]) -> int:
        return self._inner.learn(past)

    def suggest(self, number: int) -> Params | None:
        return self._first[number] if number < len(self._first) else self._inner.suggest(number)

    def observe(self, event: Event) -> None:
        self._inner.observe(event)


def drawn(space: Space, starts: Iterable[Params], seed: int) -> list[Params]:
    """``starts``, completed by random draws."""

    def complete(part: Space, place: int, tried: Collection[str]) -> Params | None:
        return first_new(part, uniform_draws(seed, place), tried, uniform_numbers(seed, place))

    return starting.completed(space, starts, complete)
