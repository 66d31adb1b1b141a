"""Which trials can be trained together: what keeps one from it, and which are alike enough."""

from __future__ import annotations

from typing import Any

from trainables.data.chunks import ArraySplit
from trainables.data.sources import Visits
from trainables.loop.graph_program import GraphProgram
from trainables.loop.steps import CompiledStep
from trainables.loop.trial import Trial
from trainables.loop.update import Graph
from trainables.replicas import random_layers
from trainables.state.owned import Arrays


def hindrance(trial: Trial) -> str:
    """Return what keeps a trial from being trained together with others; empty where nothing is known of."""
    program, training = trial.program, trial.assignment.training
    if not isinstance(program, GraphProgram):
        return "Model.fit or a parameter server trains them"
    if trial.placement.replicas.number > 1:
        return "each has several replicas"
    reasons = {
        "hooks or callbacks hear of their epochs": bool(trial.hooks or trial.callbacks),
        "they have phases": trial.span.last is not None,
        "training.run_eagerly is set": training.get("run_eagerly") is True,
        "updates go through XLA (training.jit_compile)": bool(program.xla.wanted),
        "weights are averaged over epochs (swa_from)": program.by_epoch is not None,
        "the first one is profiled": trial.assignment.profile is not None,
    }
    return next((why for why, there in reasons.items() if there), "") or _of_graph(program.graph)


def _of_graph(graph: Graph) -> str:
    if not isinstance(graph.step, CompiledStep):
        return "train_step() is one's own"
    reasons = {
        "batches are cut (micro_batches)": not graph.whole,
        "gradients are scaled (mixed_float16)": graph.loss_scale is not None,
        "weights are averaged (ema_momentum)": graph.average is not None,
        "updates are sharpness-aware (sam_rho)": graph.recipe.sharpness,
        "a hook hears of each update": graph.watch is not None,
    }
    return next((why for why, there in reasons.items() if there), "")


def alike(one: Trial, other: Trial) -> bool:
    """Return whether two trials have the same program, and batches of the same examples."""
    return (
        one.program is other.program
        and one.walk.data is other.walk.data
        and (one.walk.batch_size, one.walk.per_epoch) == (other.walk.batch_size, other.walk.per_epoch)
        and one.held_out == other.held_out
        and Visits.of(one.hp) == Visits.of(other.hp)
        and (one.assignment.seed == other.assignment.seed or stays(one))
    )


def stays(trial: Trial) -> bool:
    """Return whether the examples lie on the device, so that trials can visit them in orders of their own."""
    return isinstance(trial.walk.data, ArraySplit) and trial.walk.data.stays


def stream(trial: Trial, state: Arrays) -> tuple[Any, ...]:
    """Return what two trials have in common that see the same batches and draw the same random numbers."""
    program = trial.program
    generators = random_layers.generators_of(program.networks)
    raw = {id(generator.state.value) for generator in generators}
    seeds = [state[path][0].tobytes() for path in program.state if id(program.state[path].raw) in raw]
    return trial.assignment.seed, trial.epoch, *seeds
