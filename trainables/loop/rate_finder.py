"""The loss of one update after the other at rising learning rates, for `plan --find-lr`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trainables.data.chunks import Chunk
from trainables.data.passes import Walk
from trainables.loop.program import Program


def losses(program: Program, walk: Walk, rates: Sequence[float]) -> Iterator[float]:
    """Train one update at each rate and give the loss of its batch before it; NaN, and the end, where it is not finite.

    The program is the trial's own, with the graph that training runs; the next `begin` puts it back.
    """
    program.state.will_train()
    for number, (rate, chunk) in enumerate(zip(rates, _batches(walk), strict=False)):
        loss = program.one_update(chunk, rate, batch_size=walk.batch_size, seed=walk.seed, number=number)
        yield loss
        if not np.isfinite(loss):
            return


def _batches(walk: Walk) -> Iterator[Chunk]:
    """Whole batches, pass after pass: each at the beginning of a chunk of one length, for one trace."""
    number = 0
    while True:
        number += 1
        for chunk in walk.data.chunks(walk.batch_size, walk.seed, number):
            for place in range(max(len(chunk.order) // walk.batch_size, 1)):
                yield Chunk(chunk.tensors, np.roll(chunk.order, -place * walk.batch_size))
