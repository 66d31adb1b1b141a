"""What a sweep's time was spent on, in two lines."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.analysis.costs import Costs
from sweep.render.figures import duration

NAMED = 5


def lines(costs: Costs) -> Iterator[str]:
    """Training and overhead, and the trials that starve."""
    overhead = sum(costs.overhead_s.values())
    parts = sorted(costs.overhead_s.items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts if seconds >= 0.05)
    yield f"{costs.sweep}: trained {duration(costs.train_s)}, overhead {duration(overhead)}" + (
        f" ({listed})" if listed else ""
    )
    if costs.starving:
        worst = sorted(costs.starving.items(), key=lambda trial: -trial[1])
        named = ", ".join(f"{trial} ({share:.0%})" for trial, share in worst[:NAMED])
        more = f" and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
        yield f"{costs.sweep}: starved of data: trial {named}{more}; see docs/data.md"
