"""Random trials, each trained twice in ways that must not matter, and once by `Model.fit` where Keras has all of it.

    python benchmarks/fuzz.py --minutes 30 --seed 0
    python benchmarks/fuzz.py --only 17

The ways that must not matter are replicas, micro-batches, XLA, an earlier trial of the worker, and an interruption. The
last two give the same bits, even if authors keep state in their modules and change it at any moment (`fuzz_kept.py`),
unless the trial reports that it is not reproducible. The others sum in another order. In float32, that makes a
difference of 2e-6 of an array's scale after a dozen updates of these small, smooth models (in half precision, of two
roundings). Some trials amplify rounding (batch normalization over two examples, Adam on a gradient that is zero but for
rounding). Then the plain trial is trained again with its inputs changed by one rounding, and the other trial counts as
different only if it is off by more than ten times the effect of that.

Prints a line for each difference, with the number that reproduces it; the last line has the counts. Trials that are
refused by a message of our own are fine.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import faulthandler
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_recipes import Recipe, draw

HERE = Path(__file__).parent
PER_PROCESS = 40
"""Number of trials of a process, since graphs and programs of all of them stay in its memory."""
STUCK_S = 300
LEAST = 0.1
"""Minimum scale by which a difference is divided, since small numbers have the rounding of the sums they come from."""
BLOWN_UP = 10.0
Values = Mapping[str, Any]


def main(arguments: list[str] | None = None) -> int:
    """Draw, compare and count trials; return 1 if any of them differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="number of the first trial")
    parser.add_argument("--trials", type=int, default=10**9)
    parser.add_argument(
        "--only", type=int, help="the trial of this number, with all that is known of it"
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    deadline = time.monotonic() + given.minutes * 60
    if given.child:
        _child(range(given.seed, given.seed + given.trials), deadline)
        return 0
    if given.only is not None:
        given.seed, given.trials = given.only, 1
        print(draw(given.only).said())
    return _parent(given.seed, given.trials, deadline)


# ---- many trials, in processes of some


def _parent(first: int, trials: int, deadline: float) -> int:
    kinds: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    number, end = first, first + trials
    while number < end and time.monotonic() < deadline:
        for found in _some(number, min(PER_PROCESS, end - number), deadline):
            number = found["number"] + 1
            kinds[found["kind"]] += 1
            if found["kind"] == "refused":
                reasons[found["text"]] += 1
            elif found["kind"] == "different":
                print(
                    f"--only {found['number']}: {found['text']}\n    {draw(found['number']).said()}",
                    flush=True,
                )
    refused = ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common())
    print(f"state that is kept: {kinds['said']} said not to be reproducible")
    print(
        f"same {kinds['same']}, of them compared with fit {kinds['fit']}, rounding blown up {kinds['rounding']}"
    )
    counted = kinds["same"] + kinds["different"] + kinds["refused"]
    print(
        f"{counted} trials, {kinds['different']} different, {kinds['refused']} refused by name {{{refused}}}"
    )
    return int(kinds["different"] > 0)


def _some(first: int, count: int, deadline: float) -> Any:
    """Yield the findings of a fresh process; if it crashes, the trial that it was training counts as different."""
    minutes = max(deadline - time.monotonic(), 1) / 60
    command = [
        sys.executable,
        __file__,
        "--child",
        *("--seed", str(first)),
        *("--trials", str(count)),
    ]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [*command, "--minutes", str(minutes)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=_environment(),
        )
        assert child.stdout is not None
        at = first
        for line in child.stdout:
            if line.startswith("@"):
                found = json.loads(line[1:])
                yield found
                at = found["number"] + 1
        if child.wait() != 0:
            errors.seek(0)
            last = errors.read()[-1500:]
            yield {
                "number": at,
                "kind": "different",
                "text": f"its process ended with {child.returncode}: {last}",
            }


def _environment() -> dict[str, str]:
    folders = (HERE, HERE.parent, HERE.parent / "tests" / "trainables")
    paths = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    return {
        **os.environ,
        "PYTHONPATH": paths,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }


def _child(numbers: range, deadline: float) -> None:
    import warnings

    import tensorflow as tf

    warnings.simplefilter("ignore")
    eight = [tf.config.LogicalDeviceConfiguration()] * 8
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], eight)
    for number in numbers:
        if time.monotonic() > deadline:
            break
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        for kind, text in _looked_at(draw(number)):
            print("@" + json.dumps({"number": number, "kind": kind, "text": text}), flush=True)


# ---- one trial


def _looked_at(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of a recipe: same, different or refused, and before that other kinds to count."""
    from fuzz_fit import by_fit, has_fit

    try:
        plain = _plain(recipe)
        straight = _trained(plain)
        others: list[tuple[str, float, Callable[[], Values]]] = []
        if recipe != plain:
            others.append(("", 0.0 if recipe.exact else recipe.tolerance, lambda: _trained(recipe)))
        if has_fit(recipe):
            others.append(("fit: ", recipe.tolerance, lambda: by_fit(plain)))
        for name, tolerance, train in others:
            found = train()
            if "said" in found:
                yield "said", str(found["said"])
                continue
            off, where = _off(straight, found, recipe)
            if off > tolerance:
                moved = max(
                    _off(straight, _trained(_nudged(plain, sign)), recipe)[0] for sign in (1, -1)
                )
                if not tolerance or off > BLOWN_UP * moved:
                    at_least = (
                        f"a rounding of the inputs makes {moved:.2g}"
                        if tolerance
                        else "the same bits are expected"
                    )
                    yield (
                        "different",
                        f"{name}{where} is {off:.2g} off; {at_least}{_without(recipe, straight, name)}",
                    )
                    return
                yield "rounding", ""
            elif name:
                yield "fit", ""
        yield "same", ""
    except Exception as error:
        yield _raised(error)


def _plain(recipe: Recipe) -> Recipe:
    """Return the recipe for one device and a fresh worker, without micro-batches.

    With batch normalization the micro-batches stay, because its statistics are those of a micro-batch.
    """
    micro = recipe.micro if "bn" in recipe.params["layers"].split("+") else 1
    return dataclasses.replace(recipe, micro=micro, replicas=0, jit=False, resumed=False, twin=None)


def _nudged(recipe: Recipe, sign: int) -> Recipe:
    return dataclasses.replace(recipe, params={**recipe.params, "nudge": sign * recipe.nudge})


def _without(recipe: Recipe, straight: Values, name: str) -> str:
    """Return in words how far each of the recipe's ways is off alone; "" if it has only one."""
    plain, taken = _plain(recipe), []
    ways = [
        way
        for way in ("micro", "replicas", "jit", "resumed", "twin")
        if getattr(recipe, way) != getattr(plain, way)
    ]
    for way in ways if not name else ():
        alone = dataclasses.replace(plain, **{way: getattr(recipe, way)})
        try:
            off, _ = _off(straight, _trained(alone), recipe)
        except Exception as error:
            off = f"{type(error).__name__}"
        taken.append(f"{way} alone {off if isinstance(off, str) else format(off, '.2g')}")
    return f" ({', '.join(taken)})" if len(taken) > 1 else ""


def _raised(error: Exception) -> tuple[str, str]:
    """Return the kind and the text of an error: refused if a ``raise`` statement of `trainables` raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [
        frame for frame in frames if Path(frame.filename).is_relative_to(HERE.parent / "trainables")
    ]
    if frames[-1] in ours and (frames[-1].line or "").startswith("raise "):
        return "refused", re.sub(r"[\d][\d.e+-]*", "#", _short(str(error), 200))
    place = ours[-1] if ours else frames[-1]
    return (
        "different",
        f"raw {type(error).__name__} by {place.filename}:{place.lineno}: {_short(str(error), 600)}",
    )


def _short(text: str, size: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= size else line[:size].rsplit(" ", 1)[0] + " ..."


def _off(expected: Values, found: Values, recipe: Recipe) -> tuple[float, str]:
    """Return the largest difference relative to the scale of its array, and its name, of all values in ``found``."""
    if missing := set(found) - set(expected):
        return float("inf"), f"one alone has {', '.join(sorted(missing))}: it"
    worst, where = 0.0, "nothing"
    for name, value in found.items():
        a, b = np.asarray(expected[name]), np.asarray(value)
        if a.dtype.kind != "f" and not recipe.exact:
            continue  # states of random generators are of a way to train
        if "accuracy" in name and recipe.precision != "float32":
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        scale = max(LEAST, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        off = np.where(same, 0.0, np.where(np.isfinite(a - b), np.abs(a - b) / scale, np.inf)).max(
            initial=0.0
        )
        if off > worst:
            worst, where = float(off), name
    return worst, where


def _trained(recipe: Recipe) -> Values:
    """Return the metrics of all epochs and all state at the end; one entry if it diverged or is not reproducible."""
    from fuzz_kept import anew
    from fuzz_models import author_of, of_the_model
    from small import go_on, metrics

    from sweep.contract import Diverged
    from trainables.keras_trainable import session_of

    anew()
    author = author_of(recipe.author, recipe.params)
    if recipe.twin is not None:
        _twin(author, recipe)
    epochs: list[Any] = []
    given = _assignment(recipe, recipe.params)
    try:
        author.begin(given)
        epochs = go_on(author, pause_after=1 if recipe.resumed else None)
        if recipe.resumed:
            with tempfile.TemporaryDirectory() as folder:
                author.save(Path(folder))()
                anew()
                author = author_of(recipe.author, recipe.params)
                author.begin(given)
                author.restore(Path(folder))
            epochs += go_on(author)
    except Diverged:
        return {"diverged": 1.0}
    found = {
        f"{name} of epoch {number}": value
        for number, each in enumerate(metrics(epochs), 1)
        for name, value in each.items()
    }
    facts = session_of(author).facts()
    if not facts.reproducible and recipe.params.get("keeps"):
        return {"said": facts.numerics["differs"]}
    program = session_of(author).trial.program
    found |= {path: np.array(parts[0]) for path, parts in program.state.copy_all().items()}
    return found | of_the_model(program.model)


def _twin(author: Any, recipe: Recipe) -> None:
    """Train the earlier trial of the worker; it may be refused or diverge."""
    from small import go_on

    try:
        author.begin(_assignment(recipe, recipe.twin or {}))
        go_on(author, pause_after=2)
    except Exception as error:
        if _raised(error)[0] != "refused" and type(error).__name__ != "Diverged":
            raise


def _assignment(recipe: Recipe, params: Values) -> Any:
    from sweep.contract import Assignment, Devices

    own = {name: value for name, value in params.items() if name != "seed"}
    if recipe.micro > 1:
        own["micro_batches"] = recipe.micro
    training: dict[str, Any] = {"precision": recipe.precision}
    if recipe.author == "of_the_model":
        training["loop"] = "fit"
    elif recipe.jit:
        training["jit_compile"] = True
    return Assignment(
        trial=0,
        params=own,
        seed=params["seed"],
        epochs=recipe.epochs,
        devices=Devices(gpus=recipe.replicas, simulated=True),
        training=training,
        objective="val_loss"
        if params.get("validated", True) and recipe.author not in ("turns", "at_once")
        else "loss",
    )


if __name__ == "__main__":
    raise SystemExit(main())
