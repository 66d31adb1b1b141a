"""What all kinds of data sets have in common: examples that are visited batch by batch, pass after pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from trainables.data.ahead import Chunk, Pass, updates
from trainables.data.share import Share
from trainables.data.sources import DataError, Visits


def unpacked(example: Any) -> tuple[Any, Any, Any]:
    """x, y and sample_weight of some examples, None where there are none of these."""
    x, y, sample_weight = (*example, None, None)[:3]
    return x, y, sample_weight


class Examples(ABC):
    """A data set, cut into the chunks of a pass; kinds of it say how in `_pass`."""

    size: int  # how many examples there are
    changes_shape = False
    """Whether the chunks of another data set with the same program may have other shapes."""
    shuffled = "the data are arrays, which are shuffled as a whole; leave it out"  # why it takes no buffer
    differs = ""  # why its elements may be others each time
    visits = Visits()
    """In which order its passes go, see `visit`."""

    def visit(self, visits: Visits) -> None:
        """Go on in this order; raises DataError for a buffer where there is none that could be set."""
        if visits.buffer is not None:
            raise DataError(f"shuffle_buffer is set, but {self.shuffled}")
        self.visits = visits

    def updates(self, batch_size: int) -> int:
        """Batches of a pass."""
        return updates(self.size, batch_size)

    def kinds(self) -> list[Chunk]:
        """A chunk of each kind of shapes, as the loop will meet them."""
        return [next(self.chunks(1, None, 0))]

    def example(self) -> Any:
        """The first example, as a batch of one."""
        return self.examples(1)

    @abstractmethod
    def examples(self, count: int) -> Any:
        """The first examples, at most this many; texts as a tensor."""

    def spread(self, count: int) -> Any:
        """At most so many examples from all over the data, where that is cheap; texts as a tensor."""
        return self.examples(count)

    def some_targets(self) -> Any:
        """The targets of the first examples, some megabytes of them where that is cheap; None without targets."""
        return unpacked(self.example())[1]

    def chunks(
        self, batch_size: int, seed: int | None, number: int, skipped: int = 0, share: Share | None = None
    ) -> Iterator[Chunk]:
        """One pass (from 1) without its first ``skipped`` batches; without a seed, the examples as they lie.

        The order depends on (seed, number) alone. With a ``share``, what is too large to lie on the devices is read
        for that alone.
        """
        return self._pass(Pass(batch_size, seed if self.visits.shuffle else None, number, skipped, share))

    def _pass(self, which: Pass) -> Iterator[Chunk]:
        raise NotImplementedError  # a source that is batched already has `chunks` of its own
