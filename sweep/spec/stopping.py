"""The `early_terminate:` block: which rule stops trials early, and whether it ever can."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from sweep.events import Value
from sweep.space import termination
from sweep.space.termination import EarlyTermination
from sweep.spec.blocks import Block, Count
from sweep.spec.document import Document, KeyPath

Factor: TypeAlias = Annotated[float, Field(ge=1.1, le=1000)]


class Asha(Block):
    """Asynchronous successive halving: at each rung the best 1/eta of the trials go on."""

    type: Literal["asha"]
    min_iter: Count = Field(1, description="First rung, in epochs; later ones by factors of eta.")
    max_iter: Count | None = Field(None, description="No rung after this epoch; the trials' epochs by default.")
    eta: Factor = Field(3.0, description="Factor between rungs; the best 1/eta of the trials go on.")
    brackets: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="Bracket b, from 0, does without the first b rungs."
    )


class Hyperband(Block):
    """Hyperband's brackets as in W&B sweeps: give min_iter, or max_iter and s."""

    type: Literal["hyperband"]
    min_iter: Count | None = Field(None, description="First bracket, in epochs; later ones by factors of eta.")
    max_iter: Count | None = Field(None, description="Epochs of a whole trial; brackets divide them by eta.")
    s: Annotated[int, Field(ge=1, le=100)] | None = Field(None, description="Number of brackets below max_iter.")
    eta: Factor = Field(3.0, description="Factor between brackets; the best 1/eta of the trials go on.")
    strict: bool = Field(False, description="Stop more trials, as in the original paper.")


class Median(Block):
    """A trial stops whose best value is worse than the median of the others at that epoch."""

    type: Literal["median"]
    min_iter: Count = Field(1, description="First epoch at which a trial may stop.")
    min_trials: Count = Field(3, description="Number of other trials it takes to compare with.")


class NoTermination(Block):
    """Every trial trains all its epochs."""

    type: Literal["none"]


EarlyTerminate: TypeAlias = Annotated[Asha | Hyperband | Median | NoTermination, Field(discriminator="type")]


def build(block: EarlyTerminate | str | None, path: KeyPath, document: Document) -> EarlyTermination:
    """The block as the rule that schedulers know; notes keys that do not go together."""
    match block:
        case Asha(min_iter=first, max_iter=int(last)) if last < first:
            document.mistake((*path, "max_iter"), f"number {last}, expected at least min_iter, which is {first}")
        case Asha():
            return termination.Asha(block.min_iter, block.max_iter, block.eta, block.brackets)
        case Hyperband(max_iter=int(most), s=int(s)):  # as in W&B, they win over min_iter
            return termination.Hyperband(None, most, s, block.eta, block.strict)
        case Hyperband(min_iter=int(first), max_iter=None):  # as in W&B, s alone has no effect
            return termination.Hyperband(first, None, None, block.eta, block.strict)
        case Hyperband():
            given = [key for key in ("min_iter", "max_iter", "s") if getattr(block, key) is not None]
            there = " and ".join(given) or "neither"
            document.mistake(path, f"{there} given, expected min_iter alone, or max_iter and s")
        case Median():
            return termination.Median(block.min_iter, block.min_trials)
        case str():
            return termination.Own(block)
        case NoTermination() | None:
            pass
    return termination.NoTermination()


def check_acts(rule: EarlyTermination, epochs: int, path: KeyPath, document: Document) -> None:
    """Note a rule that stops no trial of ``epochs`` epochs, or of which a bracket never does."""
    acting = termination.brackets(rule, epochs)
    key = "max_iter" if isinstance(rule, termination.Hyperband) and rule.max_iter else "min_iter"
    if acting and not any(acting):
        what = f"can never stop a trial of {epochs} epoch{'s' * (epochs > 1)}"
        document.mistake((*path, key), what, "lower it, train more epochs, or remove early_terminate")
    elif not all(acting):
        rungs = len(acting[0])
        what = f"number {len(acting)}, expected at most {rungs}, the number of rungs within {epochs} epochs"
        document.mistake((*path, "brackets"), what)


def to_dict(rule: EarlyTermination) -> Value:
    """A rule as it is written in a file."""
    if isinstance(rule, termination.Own):
        return rule.target
    names = {field.name: getattr(rule, field.name) for field in fields(rule)}
    kind = {
        termination.Asha: "asha",
        termination.Hyperband: "hyperband",
        termination.Median: "median",
        termination.NoTermination: "none",
    }[type(rule)]
    keys = {"min_iter" if name == "grace" else name: value for name, value in names.items()}
    return {"type": kind, **{key: value for key, value in keys.items() if value is not None}}
