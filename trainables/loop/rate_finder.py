"""The loss of one update after the other at rising learning rates, for `plan --find-lr`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trainables.data.chunks import Chunk, Split
from trainables.loop.program import Program


def losses(program: Program, data: Split, rates: Sequence[float], *, batch_size: int, seed: int) -> Iterator[float]:
    """Train one update at each rate and give the loss of its batch before it; NaN, and the end, where it is not finite.

    The program is the trial's own, with the graph that training runs; the next `begin` puts it back.
    """
    program.state.will_train()
    for number, (rate, chunk) in enumerate(zip(rates, _batches(data, batch_size, seed), strict=False)):
        loss = program.one_update(chunk, rate, batch_size=batch_size, seed=seed, number=number)
        yield loss
        if not np.isfinite(loss):
            return


def _batches(data: Split, batch_size: int, seed: int) -> Iterator[Chunk]:
    """Whole batches, epoch after epoch: each at the beginning of a chunk of one length, for one trace."""
    epoch = 0
    while True:
        epoch += 1
        for chunk in data.chunks(batch_size, seed, epoch):
            for place in range(max(len(chunk.order) // batch_size, 1)):
                yield Chunk(chunk.tensors, np.roll(chunk.order, -place * batch_size))
