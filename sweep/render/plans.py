"""A plan on a terminal, and as data."""

from __future__ import annotations

from rich.console import Console

from sweep.events import Value
from sweep.render.tables import configurations_grid, show
from sweep.runner.planning import Plan


def show_plan(plan: Plan, target: Console) -> None:
    """Print what a sweep will do."""
    spec, share = plan.spec, plan.devices
    target.print(f"{spec.name}: {spec.method} over {spec.trainable}", soft_wrap=True, highlight=False)
    each = f"{share.cpus:g} CPU" + (f", {share.gpus:g} GPU" if share.gpus else "")
    repeats = f" ({spec.repeats} repeats of each configuration)" if spec.repeats > 1 else ""
    lines = {
        "trials": f"{'no fixed number' if plan.trials is None else plan.trials}{repeats}",
        "epochs": f"{spec.epochs} a trial" + ("" if plan.epochs is None else f", {plan.epochs} in all"),
        "resources": f"{each} a trial" + (" (simulated)" if share.simulated else ""),
        "at once here": str(plan.concurrent) if plan.concurrent else "none: this machine has too little for a trial",
        "objective": ", ".join(f"{o.goal} {o.name}" for o in spec.objectives),
    }
    for name, text in lines.items():
        target.print(f"  {name:<13}{text}", soft_wrap=True, highlight=False)
    target.print("first configurations", highlight=False)
    show(configurations_grid(plan.sample), target)


def as_dict(plan: Plan) -> dict[str, Value]:
    """The plan as plain data."""
    return {
        "sweep": plan.spec.to_json_dict(),
        "trials": plan.trials,
        "epochs": plan.epochs,
        "concurrent": plan.concurrent,
        "resources": {"cpus": plan.devices.cpus, "gpus": plan.devices.gpus, "simulated": plan.devices.simulated},
        "sample": [dict(params) for params in plan.sample],
    }
