"""How training speeds up with the number of replicas: ``python benchmarks/scaling.py [--devices 1 2 4 8]``.

On GPUs each count trains on as many of them (weak scaling: the batch of a replica stays the same). Without GPUs,
logical CPU devices stand in for them; they share the CPU, so that the ratio shows what the strategy costs and no
speed-up. Every count runs in a process of its own; the loss of the first epoch must be the same for all counts
that have the same global batch (``--strong``).

``--workers`` measures the ways to make two replicas, and one alone, by what an update takes: 1x1 is one process with
one device, 1x2 one with two, 2x1 two processes (over loopback) with one each.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from typing import Any

EPOCHS = 4  # the first is left out of the mean: it warms caches up
MODELS = {
    "digits": "trainables.digits_cnn:DigitsCNN",
    "resnet20": "trainables.cifar_resnet:CifarResNet",
}


def measure(
    model: str, devices: int, batch: int, *, simulated: bool, ranks: Any = None
) -> dict[str, Any]:
    """Return examples per second and milliseconds per update after the first epoch, and the first epoch's loss."""
    import importlib

    from sweep.contract import Assignment, Devices

    module, name = MODELS[model].split(":")
    trainable = getattr(importlib.import_module(module), name)()
    params = {"optimizer": "sgd", "learning_rate": 0.01, "momentum": 0.9, "batch_size": batch}
    given = Devices(gpus=devices, simulated=simulated, ranks=ranks)
    epochs = []

    def report(epoch: Any) -> bool:
        epochs.append(epoch)
        return True

    trainable.begin(Assignment(trial=0, params=params, seed=0, epochs=EPOCHS, devices=given))
    trainable.train(report)
    steps = [epoch.measures["step_s"] for epoch in epochs[1:]]
    step_s = sum(steps) / len(steps)
    return {
        "examples_per_s": batch / step_s,
        "step_ms": 1000 * step_s,
        "loss": epochs[0].metrics["loss"],
    }


def of_workers(model: str, batch: int, *, simulated: bool) -> None:
    """Print the milliseconds per update by processes x devices, all with the same global batch."""
    print(
        f"{model}, global batch {batch}, {'logical CPU devices' if simulated else 'GPUs'}, float32"
    )
    print("workers x devices  ms an update  loss of epoch 1", flush=True)
    for workers, devices in ((1, 1), (1, 2), (2, 1)):
        held = [socket.socket() for _ in range(workers)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(("127.0.0.1", 0))
        addresses = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in held)
        command = [
            sys.executable,
            __file__,
            "--model",
            model,
            "--batch",
            str(batch),
            "--strong",
            "--one",
            str(devices),
        ]
        ranks = [
            subprocess.Popen(
                [
                    *command,
                    *(["--addresses", addresses, "--rank", str(rank)] if workers > 1 else []),
                ],
                env={
                    **os.environ,
                    **(
                        {}
                        if simulated
                        else {"CUDA_VISIBLE_DEVICES": str(rank)}
                        if workers > 1
                        else {}
                    ),
                },
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(workers)
        ]
        told = [rank.communicate()[0] for rank in ranks]
        found = json.loads(told[0].splitlines()[-1])
        print(
            f"{workers:7d} x {devices}  {found['step_ms']:19.2f}  {found['loss']:.6f}", flush=True
        )


def gpus() -> int:
    """Return the number of GPUs of this machine."""
    from sweep.store import sweep_info

    return len(sweep_info.gpus())


def main() -> None:
    """Measure each count in a process of its own and print speed, ratio and loss."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--model", choices=MODELS, default="digits")
    parser.add_argument(
        "--batch",
        type=int,
        default=64,
        help="examples of a replica; with --strong, of all together",
    )
    parser.add_argument("--strong", action="store_true", help="keep the global batch")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--workers", action="store_true", help="1x1, 1x2 and 2x1 side by side")
    parser.add_argument("--addresses", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    simulated = gpus() == 0
    if given.one:
        from sweep.contract import Ranks

        batch = given.batch if given.strong else given.batch * given.one
        ranks = Ranks(tuple(given.addresses.split(",")), given.rank) if given.addresses else None
        print(json.dumps(measure(given.model, given.one, batch, simulated=simulated, ranks=ranks)))
        return
    if given.workers:
        of_workers(given.model, given.batch, simulated=simulated)
        return
    counts = given.devices if simulated else [n for n in given.devices if n <= gpus()]
    print(
        f"{given.model}, {'logical CPU devices' if simulated else 'GPUs'}, {EPOCHS - 1} epochs after the first"
    )
    print("devices  examples/s  ratio  efficiency  loss of epoch 1")
    base = None
    for count in counts:
        found = json.loads(
            subprocess.run(
                [sys.executable, *sys.argv, "--one", str(count)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout.splitlines()[-1]
        )
        base = base or found["examples_per_s"] / count
        ratio = found["examples_per_s"] / base
        speed = f"{found['examples_per_s']:10.0f}"
        print(
            f"{count:7d}  {speed}  {ratio:5.2f}  {ratio / count:10.0%}  {found['loss']:.6f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
