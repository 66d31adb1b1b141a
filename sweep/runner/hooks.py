"""What a coordinator calls of the session around it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweep.runner.memo import Memo
from sweep.store.ledger import Change

if TYPE_CHECKING:
    from sweep.runner.coordinator import Coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """All of them; by default, nothing."""

    listen: Callable[[Change], None] = lambda change: None  # to each change, once it is logged
    stop: Callable[[], None] = lambda: None  # no more trials start, and the running ones are to end
    look: Callable[[Coordinator], None] = lambda coordinator: None  # often: may ask it to stop
    tick: Callable[[Coordinator], None] = lambda coordinator: None  # now and then: may ask it to stop
    say: Callable[[str], None] = lambda text: None  # a line for the user
    share: Callable[[Mapping[int, float]], None] = lambda wanted: None  # running trials and their new shares of a GPU
    at_once: Callable[[float], int] = lambda gpus: int(1 / gpus + 1e-9)  # trials that fit, of so many GPUs each
    to_beat: Callable[[], float | None] = lambda: None  # see `Order`
    kept: Callable[[int, int], str | None] = lambda trial, epoch: None  # the checkpoint of a trial's epoch, for `Facts`
    memo: Memo | None = None  # what earlier sweeps have trained
    clock: Callable[[], float] = time.monotonic
