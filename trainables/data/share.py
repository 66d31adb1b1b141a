"""The part of each batch that one of several training processes needs: the examples that its replicas compute.

All processes visit the same examples in the same order. Data that is too large to be placed whole in each process is
read only for the process's own slices; the order still numbers the examples of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

Mask: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.bool_]]"
Places: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int32]]"


def compute_bounds(size: Any, part: Any, parts: int) -> tuple[Any, Any]:
    """Return the positions at which part number ``part`` (from 0) of ``size`` examples begins and ends (exclusive).

    The examples are cut into ``parts`` parts whose sizes differ by at most one. Arguments may be numbers or tensors.
    """
    return size * part // parts, size * (part + 1) // parts


def fill_bounds(start: int, stop: int, size: int) -> tuple[int, int]:
    """Return ``start`` and ``stop`` of a part of an array; if the part is empty, those of a part of one row.

    ``stop`` is exclusive, and ``size`` is the number of rows of the array, at least 1. The one row is that at ``start``
    or, if there is none, the last row. Another part may have it, too.
    """
    first = min(start, size - 1)
    return first, max(stop, first + 1)


@dataclass(frozen=True)
class Share:
    """The part of each batch that one of several processes needs: the slices that its replicas compute.

    Batches are cut as in `replicas.slices.cut`.
    """

    replicas: int  # number of replicas in all processes
    local: int  # number of replicas in each process
    rank: int
    micro_batches: int = 1

    def without_micro_batches(self) -> Share:
        """Return a share for the same process in which batches are not cut into micro-batches."""
        return replace(self, micro_batches=1)

    def mask_batch(self, size: int) -> Mask:
        """Return a mask of the examples of a batch of ``size``, at least 1: True for those that this process needs.

        At least one is True. In a small batch, several processes may need the same example.
        """
        parts = self.replicas * self.micro_batches
        found = np.zeros(size, np.bool_)
        for micro_batch in range(self.micro_batches):
            for replica in range(self.rank * self.local, (self.rank + 1) * self.local):
                # as `replicas.slices.cut_for_replica` numbers them
                part = micro_batch * self.replicas + replica
                start, stop = fill_bounds(*compute_bounds(size, part, parts), size)
                found[start:stop] = True
        return found

    def mask_batches(self, size: int, batch_size: int) -> Mask:
        """Return a mask of ``size`` examples: True for those that this process needs.

        The examples are in batches of ``batch_size``, of which the last one may be smaller.
        """
        whole, rest = divmod(size, batch_size)
        parts = [
            np.tile(self.mask_batch(batch_size), whole),
            *([self.mask_batch(rest)] if rest else []),
        ]
        return np.concatenate(parts)

    def count_most_needed(self, size: int, batch_size: int) -> int:
        """Return the largest number of examples that any process needs, of ``size`` in batches of ``batch_size``.

        All processes pad their tensors to this length, so that all have the same graph.
        """
        shares = (replace(self, rank=rank) for rank in range(self.replicas // self.local))
        return max(int(share.mask_batches(size, batch_size).sum()) for share in shares)

    def places(self, size: int, batch_size: int) -> tuple[Places, Places]:
        """Return the positions of the examples that this process needs, and an index for each of all examples.

        There are ``size`` examples, at least 1, in batches of ``batch_size``. The positions are ascending, and the last
        one is repeated until there are `count_most_needed`. The index says where the example is among the positions; it
        is 0 if the example is not needed.
        """
        mine = np.flatnonzero(self.mask_batches(size, batch_size)).astype(np.int32)
        index = np.zeros(size, np.int32)
        index[mine] = np.arange(len(mine), dtype=np.int32)
        missing = self.count_most_needed(size, batch_size) - len(mine)
        positions = np.concatenate([mine, np.full(missing, mine[-1], np.int32)])
        return positions, index

    def arrange_by_replica(self, size: int, batch_size: int) -> tuple[list[Places], Places]:
        """Return the positions of the examples of each replica of this process, and a row for each of all examples.

        There are ``size`` examples, at least 1, in batches of ``batch_size``. The row says where the example is among
        the positions of its replica, which may be of another process. Batches start at the same rows on all replicas of
        all processes. A slice that is shorter than the longest one repeats its last example. If a batch has fewer
        examples than there are slices, all replicas get the whole batch.
        """
        positions_by_replica = [list[Places]() for _ in range(self.local)]
        row_of_example = np.zeros(size, np.int32)
        whole_batches, rest = divmod(size, batch_size)
        first_row = 0
        # All whole batches are cut alike and arranged at once; then the smaller last one, if there is one.
        for start, length, batches in (
            (0, batch_size, whole_batches),
            (whole_batches * batch_size, rest, 1),
        ):
            if not length or not batches:
                continue
            # `longest` is the number of rows that a batch takes on each replica.
            slices, longest, row_in_slice = self._split_by_replica(length)
            batch_starts = start + length * np.arange(batches, dtype=np.int32)
            batch_rows = first_row + longest * np.arange(batches, dtype=np.int32)
            stop = start + length * batches
            row_of_example[start:stop] = (batch_rows[:, None] + row_in_slice[None]).reshape(-1)
            for replica in range(self.local):
                own = slices[self.rank * self.local + replica]
                filled = np.concatenate([own, np.full(longest - len(own), own[-1], np.int32)])
                positions = (batch_starts[:, None] + filled[None]).reshape(-1)
                positions_by_replica[replica].append(positions)
            first_row += longest * batches
        return [np.concatenate(each) for each in positions_by_replica], row_of_example

    def _split_by_replica(self, size: int) -> tuple[list[Places], int, Places]:
        """Return the positions of each replica's examples in a batch of ``size``, the largest slice's size, and rows.

        The rows say for each example of the batch where it is in its slice. The replicas are those of all processes.
        All of them get the whole batch if some examples are in several slices.
        """
        each = (replace(self, local=1, rank=rank).mask_batch(size) for rank in range(self.replicas))
        slices = []
        for mask in each:
            slices.append(np.flatnonzero(mask).astype(np.int32))
        # some examples are in two slices, and so have no single row
        if sum(map(len, slices)) > size:
            everything = np.arange(size, dtype=np.int32)
            return [everything] * self.replicas, size, everything
        row_in_slice = np.zeros(size, np.int32)
        for own in slices:
            row_in_slice[own] = np.arange(len(own), dtype=np.int32)
        return slices, max(map(len, slices)), row_in_slice

    def make_filter(self, size: int, batch_size: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return a function for `Dataset.filter`: given a position in a pass, whether this process needs that example.

        The pass has ``size`` examples in batches of ``batch_size``. Position and answer are scalar tensors.
        """
        in_whole_batches = size // batch_size * batch_size
        # without a last, smaller batch, its mask is never used, but must not be empty
        rest_size = max(size - in_whole_batches, 1)
        batch_mask = tf.constant(self.mask_batch(max(batch_size, 1)))
        rest_mask = tf.constant(self.mask_batch(rest_size))

        def is_wanted(position: tf.Tensor) -> tf.Tensor:
            # `tf.where` computes both: this index must be valid even for positions in whole batches.
            in_rest = tf.minimum(tf.maximum(position - in_whole_batches, 0), rest_size - 1)
            return tf.where(
                position < in_whole_batches, batch_mask[position % batch_size], rest_mask[in_rest]
            )

        return is_wanted
