"""Check a sweep file for a parameter server: what it needs, and what asynchronous updates cannot do."""

from __future__ import annotations

from collections.abc import Iterable

from sweep.space.domains import choices
from sweep.spec.document import Document
from sweep.spec.parameters import Entry
from sweep.spec.sweep_file import SweepFile

OPTIMIZERS = ("sgd", "adam", "adamw")
REFUSED = {
    "micro_batches": "each update is one batch of one worker",
    "ema_momentum": "averages of weights that several workers change are not taken",
    "swa_from": "averages of weights that several workers change are not taken",
    "sam_rho": "an update of two passes would see other weights in the second",
    "frozen_epochs": "weights are not handed on between the phases of a trial",
    "layer_decay": "all weights have one rate",
    "gradient_checkpointing": "weights may change before they are read again",
    "amsgrad": "the servers compute sgd, adam and adamw",
}
"""Standard hyperparameters that such a trial cannot have, and why."""


def check(file: SweepFile, entries: Iterable[Entry], document: Document) -> None:
    """Note what cannot be, with the reason."""
    training, resources = file.training, file.resources
    if training.strategy != "parameter_server":
        if resources.servers:
            what = (
                f"{resources.servers}, and training.strategy is {training.strategy}, which keeps no weights on servers"
            )
            document.mistake(("resources", "servers"), what, "write training: {strategy: parameter_server}")
        return
    if not resources.servers:
        what = "parameter_server keeps the weights on servers, and resources.servers is 0"
        document.mistake(("training", "strategy"), what, "write resources: {workers: 2, servers: 1}")
    if training.loop == "fit":
        what = "fit, which in Keras 3 knows no parameter servers"
        document.mistake(("training", "loop"), what, "leave loop out")
    if training.precision.startswith("mixed"):
        what = f"{training.precision}, and servers keep and change weights in float32"
        document.mistake(("training", "precision"), what, "leave precision out")
    if training.jit_compile is True:
        what = "true, and updates on servers do not go through XLA"
        document.mistake(("training", "jit_compile"), what, "leave jit_compile out")
    if training.cross_device != "auto":
        what = f"{training.cross_device}, and nothing is summed over the workers of a parameter server"
        document.mistake(("training", "cross_device"), what, "leave cross_device out")
    if resources.gpus not in (0, 1):
        given = resources.gpus if resources.gpus == "auto" else f"{resources.gpus:g}"
        what = f"{given}, expected 0 or 1: each worker of a parameter server computes on one device"
        document.mistake(("resources", "gpus"), what, "give a trial more workers instead")
    for entry in entries:
        if entry.name in REFUSED:
            document.mistake(entry.path, f"not with a parameter server: {REFUSED[entry.name]}", "leave it out")
        elif entry.name == "optimizer" and entry.domain is not None:
            others = [value for value in choices(entry.domain) or () if _bare(value) not in OPTIMIZERS]
            if others:
                what = (
                    f"{others[0]!r}, expected {', '.join(OPTIMIZERS)}: those that a parameter server's servers compute"
                )
                document.mistake(entry.path, what)


def _bare(value: object) -> str:
    return str(value).lower().replace("_", "")
