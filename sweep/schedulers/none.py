"""No early stopping: every trial trains all its epochs."""

from __future__ import annotations

from sweep.events import Event


class NoScheduler:
    """Lets every trial go on."""

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return ()

    def observe(self, event: Event) -> str | None:
        return None
