"""A trainable whose data are split by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from small import Small

from sweep.hyperparameters import Hyperparameters

SIZE = 90


class Split(Small):
    """Points of which chance decides which are trained on; the first number of each says which point it is."""

    order: Callable[[], Any] = staticmethod(lambda: np.random.permutation(SIZE))

    def data(self, hp: Hyperparameters) -> Any:
        (x, y), (x_more, y_more) = super().data(hp)
        x, y = np.concatenate([x, x_more]), np.concatenate([y, y_more])
        x[:, 0] = np.arange(len(x))
        order = type(self).order()
        cuts = [order[:60], order[60:75], order[75:]]
        self.calls = [*getattr(self, "calls", []), cuts]
        return tuple((x[rows], y[rows]) for rows in cuts)


def ids(split: Any) -> set[int]:
    return {int(number) for number in split.arrays[0][:, 0]}
