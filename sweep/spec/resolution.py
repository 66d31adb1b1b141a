"""Resolve a document to a `Spec`: check its parts and how they go together, and note every mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sweep.events import Params
from sweep.progress import UNBOUNDED_EPOCHS, count_length
from sweep.space import Parameter, Space
from sweep.space.domains import Range, Tied, list_choices
from sweep.space.early_terminate import (
    RULES,
    EarlyTermination,
    NoTermination,
    Own,
    PopulationRules,
    compute_decision_epochs,
    default_first_rung,
    earliest_ranking_epoch,
)
from sweep.spec import automatic, configurations, parameters, sweep_file
from sweep.spec.automatic import Automatic
from sweep.spec.blocks import Metric, find_notify_mistakes
from sweep.spec.parameters import Entry
from sweep.spec.resolved import Spec
from sweep.spec.search_methods import AUTO, SEARCHED, STANDALONE, Method, find_method
from sweep.spec.sweep_file import (
    HINTS,
    MAX_EPOCHS,
    MAX_SEED,
    NAME,
    REQUIRED,
    SERVER_KEYS,
    SweepFile,
)
from sweep.spec.validation import (
    Document,
    KeyPath,
    describe_expected,
    describe_value,
    format_path,
    get_schema,
    validate_parts,
)
from sweep.store.sweep_info import maximizes
from sweep.text import counted, did_you_mean, join_words


class SpecResolver:
    """Checks a document and resolves it to a `Spec`, part by part, so that a mistake in one part hides no others."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.notes: list[str] = []
        self.starts: tuple[Params, ...] = ()
        self.baseline: Params | None = None
        self.file, self.wrong = validate_parts(SweepFile, document.data, document, HINTS)
        self.automatic = self.choose_method()
        if self.automatic is not None:
            self.file = self.file.model_copy(update={"method": self.automatic.method})
        # None if the file names none that is known
        if self.file.method is None:
            self.method = None
        else:
            self.method = find_method(self.file.method)

    @property
    def learns(self) -> bool:
        """Whether the file's method learns from the results of trials; False if the file names no known method."""
        return self.method is not None and self.method.learns

    @property
    def enumerates(self) -> bool:
        """Whether the file's method tries every combination of values; False if the file names no known method."""
        return self.method is not None and self.method.enumerates

    @property
    def is_population(self) -> bool:
        """Whether the file's method trains a population; False if the file names no known method."""
        return self.method is not None and self.method.population

    @property
    def epochs(self) -> int:
        """The number of epochs of a trial without a parameter ``epochs``.

        It is `UNBOUNDED_EPOCHS` if the file has the key `minutes` but not the key `epochs`.
        """
        is_bounded = self.file.minutes is None or "epochs" in self.document.data
        if is_bounded:
            return self.file.epochs
        return UNBOUNDED_EPOCHS

    def resolve(self) -> Spec | None:
        """Check the whole document and return the resolved sweep; None if there are mistakes.

        Mistakes are added to the document; those that it had before count, too. Call it once, because it adds
        to `notes`.
        """
        file, document = self.file, self.document
        self.check_required()
        self.check_warm_start()
        self.check_notify()
        self.check_seeds()
        name = self.resolve_name()
        metrics = self.resolve_metrics()
        self.check_held_out(metrics)
        self.check_exclusive_settings()
        self.check_workers()
        self.check_minutes()
        self.check_stop_when()
        self.check_reduction()
        mistakes_before = document.found  # a space is made only if what follows adds none
        entries = parameters.read_parameters(file.parameters or {}, ("parameters",), document)
        if self.enumerates:
            parameters.check_grid(entries, document)
        sweep_file.check_parameter_server(file, entries, document)
        self.notes += parameters.note_unusual_values(entries, document)
        names = [entry.name for entry in entries]
        if names:
            texts = document.data.get("constraints")
        else:  # which is a mistake by itself: there are no parameters that constraints could be compared with
            texts = None
        objectives = [metric.name for metric in metrics]
        # Expressions, by their texts.
        constraints = configurations.read_constraints(
            texts, names, objectives, ("constraints",), document
        )
        on_parameters = {}  # the other constraints are on metrics, and so not part of the space
        for text, constraint in constraints.items():
            if constraint.names <= set(names):
                on_parameters[text] = constraint
        space = None
        if names and document.found == mistakes_before:
            with_beliefs = self.add_beliefs(
                [entry.parameter for entry in entries if entry.parameter]
            )
            space = Space(with_beliefs, tuple(on_parameters.values()))
            self.check_space(space, entries)
        rule = self.resolve_early_termination(entries)
        population = self.resolve_population(entries)
        # A missing trainable and an unknown method are mistakes as well; they are named for the type checker.
        if space is None or document.mistakes or file.trainable is None or self.method is None:
            return None
        return Spec(
            name=name,
            description=file.description or "",
            trainable=file.trainable,
            method=self.method.same_as or self.method.name,  # bayes is another name of tpe
            metrics=metrics,
            space=space,
            constraints=tuple(
                constraint for text, constraint in constraints.items() if text not in on_parameters
            ),
            epochs=self.epochs,
            minutes=file.minutes,
            early_terminate=rule,
            run_cap=file.run_cap,
            repeats=file.repeats,
            folds=file.folds,
            seed=file.seed,
            training=file.training.to_plain_data(),
            resources=file.resources,
            budget=file.budget,
            stop_when=file.stop_when,
            max_failures=file.max_failures,
            max_restarts=file.max_restarts,
            retries=file.retries,
            checkpoint=file.checkpoint,
            notify=file.notify,
            warm_start=file.warm_start,
            start_with=self.starts,
            baseline=self.baseline,
            confirm=file.confirm,
            population=population,
            names_first_rung=self.names_first_rung,
            chosen=() if self.automatic is None else self.automatic.lines,
            ignored_keys=self.list_ignored_keys(),
            notes=tuple(self.notes),
            places=self.collect_places(entries),
        )

    def choose_method(self) -> Automatic | None:
        """Return the automatic choice of a method and a rule, for a file without a method or with ``auto``.

        Returns None if the file names any other method, valid or not.
        """
        file = self.file
        if file.method not in (None, AUTO) or "method" in self.wrong:
            return None
        epochs_of_parameter = _find_constant_epochs(file)  # None if there are none, or several
        if epochs_of_parameter is None:
            epochs = count_length(self.epochs)
        else:
            epochs = epochs_of_parameter
        return automatic.choose_automatically(
            # without a list there is one metric, named or not
            objectives=len(file.metrics or (0,)),
            epochs=epochs,
            # Minutes tell how long a trial is only if the file does not say its epochs.
            minutes=None if "epochs" in self.document.data else file.minutes,
            has_rule="early_terminate" in self.document.data,
            has_prior=bool(file.prior),
            lengths_differ="epochs" in (file.parameters or {}) and epochs_of_parameter is None,
            # A budget in epochs cannot be compared with trials whose length is in minutes.
            budget_epochs=file.budget.epochs if self.epochs < UNBOUNDED_EPOCHS else None,
        )

    def resolve_population(self, entries: list[Entry]) -> PopulationRules | None:
        """Return the settings of the block `population`, even if it has mistakes; None without a population.

        There is one if the method has one; without the block, the settings are then the defaults. Nothing is checked if
        the method is unknown. Adds mistakes for the block with a method that has no population, for an interval that is
        not below the epochs, for names in ``perturb`` that are no parameters, and for what does not go with a
        population: the keys in `NOT_WITH_A_POPULATION`, ``budget.trials`` and a parameter ``epochs``. It is a mistake,
        too, if copies have no parameter to change (`check_perturbed`).
        """
        file = self.file
        document = self.document
        method = self.method
        if method is None:  # an unknown one, which is a mistake by itself
            return None
        if not method.population:
            if file.population is not None:
                what = f"method {file.method} has no population"
                hint = f"write method: {_join_method_names(one for one in SEARCHED if one.population)}, or remove it"
                document.add_mistake(("population",), what, hint, at_key=True)
            return None
        block = file.population or sweep_file.PopulationBlock()
        self.check_keys_beside_population()
        if block.interval >= file.epochs and "epochs" not in self.wrong:
            what = f"number {block.interval}, and no generation ends before the last of {file.epochs} epochs"
            document.add_mistake(("population", "interval"), what, "lower it, or train more epochs")
        known = {entry.name: entry for entry in entries}
        for place, name in enumerate(block.perturb):
            if name not in known:
                document.add_mistake(
                    ("population", "perturb", place),
                    f"no parameter {name!r}",
                    did_you_mean(name, known),
                )
        if "epochs" in known:
            what = "is a parameter, and all members of a population train as long"
            document.add_mistake(
                known["epochs"].path, what, "write epochs: beside parameters", at_key=True
            )
        self.check_perturbed(method, entries, block.perturb)
        return PopulationRules(
            size=block.size,
            interval=block.interval,
            epochs=file.epochs,
            quantile=block.quantile,
            resample=block.resample,
            perturb=block.perturb,
            method=method.name,
        )

    def check_keys_beside_population(self) -> None:
        """Add a mistake for each key in `NOT_WITH_A_POPULATION` that the file sets, and for ``budget.trials``.

        A key with its default, a rule of the type ``none`` and a list of one metric are accepted. It is to be called
        for methods with a population alone.
        """
        file = self.file
        document = self.document
        for key, reason in sweep_file.NOT_WITH_A_POPULATION.items():
            value = getattr(file, key)
            # `early_terminate: {type: none}` and a list of one metric change nothing.
            changes_nothing = isinstance(value, sweep_file.RULES["none"]) or (
                key == "metrics" and value and len(value) == 1
            )
            if value != type(file).model_fields[key].default and not changes_nothing:
                document.add_mistake(
                    (key,),
                    f"does not go with method {file.method}: {reason}",
                    "remove it",
                    at_key=True,
                )
        if file.budget.trials is not None:  # the same limit by another name
            what = f"does not go with method {file.method}: {sweep_file.NOT_WITH_A_POPULATION['run_cap']}"
            document.add_mistake(("budget", "trials"), what, "remove it", at_key=True)

    def check_perturbed(
        self, method: Method, entries: list[Entry], perturb: tuple[str, ...]
    ) -> None:
        """Add a mistake if the copies in a population have no parameter to change.

        ``perturb`` are the parameters that `population.perturb` names. If it is empty, copies change the numbers with a
        range, of which there must be one. If ``method`` changes only such numbers, as pb2 does, at least one of the
        names must be one.
        """
        numbers = set()  # names of the parameters that are numbers with a range
        for entry in entries:
            if isinstance(entry.domain, Range):
                numbers.add(entry.name)
        # both messages begin so
        what_begins = f"{method.name} moves numbers that have a range, and "
        # the methods whose copies may change parameters of any kind
        others = _join_method_names(
            one for one in SEARCHED if one.population and not one.moves_numbers_only
        )
        if not perturb and not numbers:
            hint = "name what copies change: population: {perturb: [...]}"
            if method.moves_numbers_only:
                hint = f"give a parameter min and max, or use {others} and population.perturb"
            self.document.add_mistake(("method",), f"{what_begins}no parameter is one", hint)
        elif method.moves_numbers_only and perturb and not numbers & set(perturb):
            hint = f"name a parameter that has min and max, or use {others}"
            self.document.add_mistake(
                ("population", "perturb"), f"{what_begins}none is named", hint, at_key=True
            )

    def add_beliefs(self, found: list[Parameter]) -> tuple[Parameter, ...]:
        """Return the parameters with the author's beliefs (`prior`) added; add mistakes for invalid beliefs.

        The belief of a parameter that `prior` does not name is None. A `prior` is also a mistake if the method does not
        use it.
        """
        file, document = self.file, self.document
        if file.prior and self.method is not None and not self.method.uses_prior:
            hint = f"write method: {_join_method_names(one for one in STANDALONE if one.uses_prior)}, or remove it"
            document.add_mistake(
                ("prior",), f"method {file.method} does not use it", hint, at_key=True
            )
        beliefs = configurations.read_prior(file.prior, found, ("prior",), document)
        return tuple(replace(one, belief=beliefs.get(one.name)) for one in found)

    def collect_places(self, entries: list[Entry]) -> dict[str, str]:
        """Return places in the file, as texts such as ``file:line:column: path``, for later messages.

        The keys are the names of parameters, and the paths of values of `baseline` and `start_with` and of the names of
        metrics, such as ``baseline.lr``, ``start_with[0].lr``, ``metric.name`` or ``metrics[0].name``. The place of
        what an assignment has set is the assignment.
        """
        places = {}
        paths_of_metrics: list[KeyPath] = [
            ("metrics", index, "name") for index in range(len(self.file.metrics or ()))
        ]
        if self.file.metric is not None:
            paths_of_metrics.append(("metric", "name"))
        for path in paths_of_metrics:
            places[format_path(path)] = self.document.place(path)
        for entry in entries:
            places[entry.name] = self.document.place(entry.path, at_key=True)
        paths_of_values: list[KeyPath] = []
        for name in self.file.baseline or {}:
            paths_of_values.append(("baseline", name))
        for index, start in enumerate(self.file.start_with):
            for name in start:
                paths_of_values.append(("start_with", index, name))
        for path in paths_of_values:
            places[format_path(path)] = self.document.place(path)
        return places

    def list_ignored_keys(self) -> tuple[str, ...]:
        """Return the keys of the file that have no effect, each once: those for W&B's server, and some of a metric.

        Of a metric, ``impute_while_running`` is among them unless it is false, and ``impute`` if the method does not
        learn. They are written as ``metric.impute`` or, for any of the list ``metrics``, as ``metrics.impute``.
        """
        # each metric with the key that it stands under
        named = [
            ("metric", self.file.metric),
            *(("metrics", metric) for metric in self.file.metrics or ()),
        ]
        keys = []
        for key in self.document.data:
            if key in SERVER_KEYS:
                keys.append(key)
        for key, metric in named:
            if metric and metric.impute_while_running not in ("false", False):
                keys.append(f"{key}.impute_while_running")
            if metric and metric.impute is not None and not self.learns:
                keys.append(f"{key}.impute")
        return tuple(dict.fromkeys(keys))  # each key once, though several metrics may have it

    def add_missing_key(self, key: str, hint: str = "") -> None:
        """Add a mistake for a missing top-level key, which says what is expected; ``hint`` follows if not empty."""
        expected = describe_expected(get_schema(SweepFile)["properties"][key])
        self.document.add_mistake((key,), f"missing, expected {expected}", hint)

    def check_seeds(self) -> None:
        """Add a mistake if the last seed that repeats and `confirm` use is above `MAX_SEED`.

        Nothing is checked if one of the keys `seed`, `repeats` and `confirm` is invalid.
        """
        file = self.file
        # Repeats use the seeds from ``seed`` on, and `confirm` those that follow.
        last_seed = file.seed + file.repeats - 1 + (file.confirm.seeds if file.confirm else 0)
        if last_seed > MAX_SEED and not self.wrong & {"seed", "repeats", "confirm"}:
            what = (
                f"{file.seed}, and the seeds of repeats and confirm count up from it to {last_seed}"
            )
            self.document.add_mistake(
                ("seed",), what, f"expected seeds up to {MAX_SEED}: write a smaller one"
            )

    def check_required(self) -> None:
        """Add a mistake for each required key that is missing or null; one that is invalid has a mistake already."""
        for key in REQUIRED:
            if getattr(self.file, key) is None and key not in self.wrong:
                if key == "trainable" and "program" in self.document.data:
                    hint = "W&B's program is not run; name a class instead"
                else:
                    hint = ""
                self.add_missing_key(key, hint)

    def check_notify(self) -> None:
        """Add the mistakes in each receiver of notices, such as a key without another one that it needs.

        `find_notify_mistakes` lists them.
        """
        for index, receiver in enumerate(self.file.notify):
            for key, what, hint in find_notify_mistakes(receiver):
                # without a key, the mistake is that of the receiver as a whole
                path: KeyPath = ("notify", index, key) if key else ("notify", index)
                self.document.add_mistake(path, what, hint)

    def check_warm_start(self) -> None:
        """Add a mistake for `warm_start` with a method that does not learn."""
        if self.file.warm_start and self.method is not None and not self.learns:
            what = f"method {self.file.method} learns nothing from earlier sweeps"
            hint = f"remove it, or use {_join_method_names(one for one in SEARCHED if one.learns)}"
            self.document.add_mistake(("warm_start",), what, hint, at_key=True)

    def resolve_name(self) -> str:
        """Return the name of the results folder: the name in the file or, without a valid one, the stem of its path.

        Each run of characters other than A-Z, a-z, 0-9, ".", "_" and "-" becomes one "-", and "-" at the ends is
        removed. Adds a mistake if the file has no name and the stem is no valid one.
        """
        name = self.file.name or Path(self.document.source).stem
        # A name from the file has been validated already, but the stem of its path has not.
        if "name" not in self.wrong and not re.fullmatch(NAME, name):
            self.document.add_mistake(
                (), f"the file's name {name!r} cannot name a results folder", "write name: my_sweep"
            )
        return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")

    def resolve_metrics(self) -> tuple[Metric, ...]:
        """Return the metrics, or ``val_loss`` to be minimized if the file names none; add mistakes to the document.

        Mistakes are ``metrics`` beside ``metric``, metrics that are named twice, and keys that do not go with several
        (`check_single_objective`). A file that names none, not even an invalid one, has a mistake only if it has
        `early_terminate`, or a method that learns or has a population. Adds a note for a metric without a goal whose
        name suggests that larger is better, and for a target of any metric but the first.
        """
        file, document = self.file, self.document
        named: list[tuple[KeyPath, Metric]] = [(("metric",), file.metric)] if file.metric else []
        named += [(("metrics", index), metric) for index, metric in enumerate(file.metrics or ())]
        if file.metric and file.metrics:
            document.add_mistake(
                ("metrics",), "beside metric, expected one of the two", at_key=True
            )
        seen: set[str] = set()
        for path, metric in named:
            if metric.name in seen:
                document.add_mistake(
                    (*path, "name"),
                    f"{describe_value(metric.name)}, expected another metric than above",
                )
            seen.add(metric.name)
            if "goal" not in metric.model_fields_set and maximizes(metric.name):
                self.notes.append(
                    f"{metric.name} looks as if larger is better, and is minimized as in W&B where no goal is "
                    "given; write goal: maximize, or minimize"
                )
        if len(named) > 1:
            self.check_single_objective()
            self.note_targets([metric for _, metric in named[1:]])
        elif not named and not {"metric", "metrics"} & self.wrong:
            # Name what the file names: it may leave the method to auto.
            if self.automatic is None:
                method = file.method
            else:
                method = AUTO
            if file.early_terminate:
                reason = "early_terminate"
            else:
                reason = f"method {method}"
            # These compare trials while the sweep runs, by what the file should say; for other methods, the metric
            # only ranks the results.
            if file.early_terminate or self.learns or self.is_population:
                self.add_missing_key("metric", f"{reason} needs it")
        return tuple(metric for _, metric in named) or (Metric(name="val_loss", goal="minimize"),)

    def check_exclusive_settings(self) -> None:
        """Add mistakes for settings that exclude each other with any number of workers.

        These are ``gpus: auto`` with one trial at a time, ``jit_compile: true`` with `deterministic` or `run_eagerly`,
        what does not go with `fuse` (`check_fused`), and the strategy `tpu` with GPUs.
        """
        training = self.file.training
        resources = self.file.resources
        if resources.gpus == "auto" and resources.max_concurrent == 1:
            what = "auto lets several trials share a GPU, and one runs at a time"
            self.document.add_mistake(
                ("resources", "gpus"), what, "write gpus: 1, or leave max_concurrent out"
            )
        if training.jit_compile is True and training.deterministic:
            what = "true, but TensorFlow does not guarantee bit-identical results with XLA"
            self.document.add_mistake(
                ("training", "jit_compile"), what, "leave out jit_compile or deterministic"
            )
        if training.run_eagerly and training.jit_compile is True:
            what = "true, and run_eagerly runs each operation by itself"
            self.document.add_mistake(
                ("training", "jit_compile"), what, "leave out jit_compile or run_eagerly"
            )
        self.check_fused()
        if training.strategy == "tpu" and resources.gpus:
            what = "tpu takes the TPU cores of a machine, and trials are given GPUs"
            self.document.add_mistake(
                ("training", "strategy"), what, "leave strategy out, or resources.gpus"
            )

    def check_workers(self) -> None:
        """Add mistakes for settings that are not possible for a trial with several workers.

        These are a share of a GPU and, in `training`, the loop `fit`, ``jit_compile: true``, strategies for one process
        or one device, and ways to sum gradients within one process. Nothing is checked for trials with one worker, and
        for the strategy `parameter_server`, which has a check of its own.
        """
        training = self.file.training
        resources = self.file.resources
        # `check_parameter_server` of the module `sweep_file` checks the settings of that strategy.
        if resources.workers == 1 or training.strategy == "parameter_server":
            return
        several = f"and a trial has {resources.workers} workers"
        if training.loop == "fit":
            self.document.add_mistake(
                ("training", "loop"),
                f"fit trains in one process, {several}",
                "leave loop out, or workers",
            )
        if training.jit_compile is True:
            what = f"true compiles the updates of one process, {several}"
            self.document.add_mistake(
                ("training", "jit_compile"), what, "leave jit_compile out, or workers"
            )
        if resources.gpus == "auto" or 0 < resources.gpus < 1:
            what = f"a share of a GPU, {several}; workers of one trial cannot share a GPU"
            self.document.add_mistake(
                ("resources", "gpus"), what, "give each a whole one, or leave workers out"
            )
        if training.strategy in ("none", "one_device"):
            what = f"{training.strategy} is for one device, {several}"
            self.document.add_mistake(
                ("training", "strategy"), what, "leave strategy out, or workers"
            )
        if training.strategy == "tpu":
            what = f"tpu takes all TPU cores of a machine in one process, {several}"
            self.document.add_mistake(("training", "strategy"), what, "leave workers out")
        if training.cross_device in ("hierarchical_copy", "reduction_to_one_device"):
            what = f"{training.cross_device} is for the devices of one process, {several}"
            self.document.add_mistake(
                ("training", "cross_device"), what, "write auto, ring or nccl, or leave workers out"
            )

    def check_minutes(self) -> None:
        """Add a mistake for each setting that cannot be combined with `minutes`; none if the file does not have it.

        These are a parameter `epochs`, a population, `training.fuse`, and several workers a trial.
        """
        file = self.file
        if file.minutes is None:
            return
        several = file.resources.workers > 1 or file.training.strategy == "parameter_server"
        # The reasons, and whether each applies.
        reasons = {
            "a parameter called epochs": "epochs" in (file.parameters or {}),
            f"method {file.method}, whose members train the same epochs": self.is_population,
            "training.fuse: trials that train as one program have no time of their own": bool(
                file.training.fuse
            ),
            "several workers a trial, which would each go by a clock of their own": several,
        }
        for reason, applies in reasons.items():
            if applies:
                self.document.add_mistake(
                    ("minutes",),
                    f"does not go with {reason}",
                    "write epochs in its place",
                    at_key=True,
                )

    def check_stop_when(self) -> None:
        """Add a mistake for a `stop_when` without any condition, or for one on the gain with a population.

        A file without `stop_when` has none.
        """
        when = self.file.stop_when
        if when is None:
            return
        if when.no_improvement is None and not when.asks_for_gain:
            hint = "expected no_improvement, gain or gain_per_hour"
            self.document.add_mistake(("stop_when",), f"says nothing, {hint}", at_key=True)
        if self.is_population and when.asks_for_gain:
            if when.gain is None:
                key = "gain_per_hour"
            else:
                key = "gain"
            what = f"does not go with method {self.file.method}, whose members change their parameters while they train"
            self.document.add_mistake(
                ("stop_when", key), what, "write no_improvement in its place", at_key=True
            )

    def check_fused(self) -> None:
        """Add a mistake for each setting that cannot be combined with `training.fuse`; none without it.

        These are several workers or GPUs a trial, ``gpus: auto``, parameter servers, and in `training` the loop `fit`,
        `run_eagerly` and ``jit_compile: true``.
        """
        training = self.file.training
        resources = self.file.resources
        if not training.fuse:
            return
        # The reasons, and whether each applies.
        reasons = {
            "a trial has several workers": resources.workers > 1
            or training.strategy == "parameter_server",
            "loop fit trains them one at a time": training.loop == "fit",
            "run_eagerly runs each operation by itself": training.run_eagerly,
            "jit_compile true compiles the updates of one": training.jit_compile is True,
            "gpus auto shares a GPU between processes": resources.gpus == "auto",
            "a trial has several GPUs": resources.most_gpus > 1,
        }
        for reason, applies in reasons.items():
            if applies:
                self.document.add_mistake(
                    ("training", "fuse"), f"{training.fuse}, and {reason}", "leave out one of them"
                )

    def check_reduction(self) -> None:
        """Add a mistake for a hierarchical copy over an odd number of GPUs, of which TensorFlow ignores the last.

        Only trials with one worker and more than one GPU are checked.
        """
        gpus = self.file.resources.most_gpus
        workers = self.file.resources.workers
        if (
            workers == 1
            and self.file.training.cross_device == "hierarchical_copy"
            and gpus > 1
            and gpus % 2
        ):
            what = f"hierarchical_copy adds up an even number of devices, and a trial has {gpus:g}"
            self.document.add_mistake(
                ("training", "cross_device"),
                what,
                "write auto, nccl, ring or reduction_to_one_device",
            )

    def check_held_out(self, metrics: tuple[Metric, ...]) -> None:
        """Add mistakes for uses of validation data with `all_data`, which leaves no validation data.

        These are `training.patience`, and metrics whose names begin with ``val_``, with one mistake for all of them.
        """
        if not self.file.training.all_data:
            return
        named = []
        for metric in metrics:
            if metric.name.startswith("val_"):
                named.append(metric.name)
        if named:
            what = f"no data is held out, but {named[0]} needs validation data"
            # The hint has the name without "val_".
            self.document.add_mistake(
                ("training", "all_data"),
                what,
                f"write metric: {{name: {named[0][4:]}}}",
                at_key=True,
            )
        if self.file.training.patience is not None:
            what = "patience needs validation data, and with all_data there is none"
            self.document.add_mistake(
                ("training", "patience"), what, "remove patience and set epochs", at_key=True
            )

    def note_targets(self, others: Sequence[Metric]) -> None:
        """Add a note for each of the metrics after the first that has a target, which has no effect."""
        for metric in others:
            if metric.target is not None:
                self.notes.append(
                    f"the target of {metric.name} has no effect, because only that of the first metric ends trials and "
                    f"the sweep; list {metric.name} first, or remove its target"
                )

    def check_single_objective(self) -> None:
        """Add mistakes for keys that do not work with several metrics; call it only if the file names several.

        These are `stop_when`, `training.patience`, `confirm`, and a method or a rule of `early_terminate` that compares
        trials by a single metric.
        """
        file, document = self.file, self.document
        method = self.method
        # For a population, `resolve_population` adds the mistake.
        if method is not None and not method.several_objectives and not method.population:
            what = f"{method.name} optimizes a single metric, but metrics lists several"
            others = sorted(one.name for one in SEARCHED if one.learns and one.several_objectives)
            document.add_mistake(("method",), what, f"use {join_words(others, 'or')}")
        # "none" also for a rule of the user's own, which has no type and is given all objectives
        kind = getattr(file.early_terminate, "type", "none")
        if not RULES[kind].scheduler_of_several:
            what = f"{kind} compares trials by a single metric, but metrics lists several"
            several = []
            for rule in RULES.values():
                if rule.scheduler_of_several and rule is not NoTermination:
                    several.append(rule.type)
            hint = f"use {join_words(several, 'or')}, which compare them by non-dominated rank"
            document.add_mistake(("early_terminate", "type"), what, hint)
        for key, present in (
            (("stop_when",), file.stop_when is not None),
            (("training", "patience"), file.training.patience is not None),
            (("confirm",), file.confirm is not None),
        ):
            if present:
                document.add_mistake(
                    key, "needs a single metric, but metrics lists several", at_key=True
                )

    def check_space(self, space: Space, entries: list[Entry]) -> None:
        """Check that the space can be searched, read `start_with` and `baseline`, and add mistakes to the document.

        It is a mistake if the space does not have what the method needs, or if no configuration meets the constraints.
        Sets `starts` and `baseline`, unless the space has mistakes. The budget is checked, too (`check_budget`). Adds a
        note if neither the method nor the space nor `run_cap` nor the budget ends the sweep, unless there are mistakes.
        """
        file = self.file
        document = self.document
        method = self.method
        mistakes_before = document.found
        if method is not None and method.need is not None and not method.need.is_met(space):
            what = f"{method.name} needs {method.need.what}, and there is none"
            document.add_mistake(("method",), what, method.need.hint)
        places = self._map_expressions(space, entries)
        configurations.check_satisfiable(
            space, places, ("constraints",), document, grid=self.enumerates
        )
        # in a space with mistakes, whether a configuration lies in it could not be said
        if document.found == mistakes_before:
            self.starts = configurations.read_start_with(
                file.start_with, space, ("start_with",), document
            )
            self.baseline = configurations.read_baseline(
                file.baseline, space, ("baseline",), document, self.notes
            )
        self.check_budget()
        # with mistakes, of the space or of what was read and checked since, there will be no sweep to make a note on
        if method is not None and document.found == mistakes_before:
            self.note_endless(space)

    def note_endless(self, space: Space) -> None:
        """Add a note if neither the method nor the space nor `run_cap` nor the budget ever ends the sweep.

        A population and a grid end by themselves, and so does a search of a finite space. `stop_when` may end the sweep
        and is named in the note.
        """
        file = self.file
        ends_by_itself = self.is_population or self.enumerates
        if ends_by_itself or file.run_cap or file.budget.trials or file.budget.bounds_time:
            return
        if space.cardinality is not None:  # a finite space is exhausted at some time
            return
        if file.stop_when:
            until = "until it is no longer worth it (stop_when) or"
        else:
            until = "until"
        self.notes.append(
            f"without run_cap and budget the sweep goes on {until} you stop it (Ctrl-C; it can be resumed); "
            "to bound it: --run-cap 50, or --set budget.hours=8"
        )

    def _map_expressions(self, space: Space, entries: list[Entry]) -> dict[str, KeyPath]:
        """Return a mapping from the text of each constraint and each tied value to its path in the file.

        The text of a tied value is without its "=". Constraints on metrics are left out, as they are not part of the
        space. A text that appears several times has the path of its first appearance, constraints first.
        """
        places: dict[str, KeyPath] = {}
        texts_in_space = {one.text for one in space.constraints}
        for index, text in enumerate(self.file.constraints):
            if text in texts_in_space:
                places.setdefault(text, ("constraints", index))
        for entry in entries:
            if isinstance(entry.domain, Tied):
                places.setdefault(entry.domain.expression.text, (*entry.path, "value"))
        return places

    def check_budget(self) -> None:
        """Add a mistake for a budget that can never be used up.

        These are GPU-hours and money without GPUs, and money without a price. Nothing is checked if `resources` or
        `budget` is invalid.
        """
        budget = self.file.budget
        resources = self.file.resources
        if "resources" in self.wrong or "budget" in self.wrong:
            return
        for name, bound in (("gpu_hours", budget.gpu_hours), ("money", budget.money)):
            if bound and not resources.gpus:
                self.document.add_mistake(
                    ("budget", name), "never reached, because trials use no GPUs"
                )
        if budget.money and resources.gpus and resources.price is None:
            self.document.add_mistake(
                ("budget", "money"), "nothing has a price", "add resources.price_per_gpu_hour"
            )

    def resolve_early_termination(self, entries: list[Entry]) -> EarlyTermination:
        """Return the rule for early stopping; add mistakes if it cannot act on the trials.

        It is the rule that ``auto`` chose or that the file describes, and `NoTermination` if there is none or if its
        keys are a mistake. If the file does not set the first rung, its rule may get one that suits the longest trial
        (`set_first_rung`). Adds a note if the rule pauses trials, unless the method is a grid or the file limits the
        number of configurations: without a limit, trials may still be paused when the sweep ends.
        """
        file, document = self.file, self.document
        mistakes_before = document.found
        if self.automatic is None:
            chosen_rule = None
        else:
            chosen_rule = self.automatic.rule
        if chosen_rule is None:
            rule = sweep_file.build_rule(file.early_terminate, ("early_terminate",), document)
        else:
            rule = chosen_rule
        epochs = count_length(self.find_longest_epochs(entries))
        if chosen_rule is None:  # a rule that auto chose says where it begins
            rule = self.set_first_rung(rule, epochs)
        if document.found == mistakes_before and "epochs" not in self.wrong:
            is_named = "epochs" in document.data or any(entry.name == "epochs" for entry in entries)
            is_default = not is_named and file.minutes is None
            length = self.describe_length(epochs)
            path: KeyPath = ("early_terminate",)
            sweep_file.check_rule_can_act(
                rule, epochs, path, document, length=length, is_default=is_default
            )
        # Only when no configuration is left to start do the best of the paused trials train to their end.
        if rule.pauses and not self.enumerates and not (file.run_cap or file.budget.trials):
            what = "trials that pause when the sweep ends stay interrupted, and perhaps none has completed"
            self.notes.append(f"without run_cap, {what}")
        return rule

    @property
    def names_first_rung(self) -> bool:
        """Whether the file sets the first rung of the rule (`min_iter`)."""
        return getattr(self.file.early_terminate, "min_iter", None) is not None

    def set_first_rung(self, rule: EarlyTermination, epochs: int) -> EarlyTermination:
        """Return the rule with the first rung that suits ``epochs``, the length of the longest trial.

        The rule is returned unchanged if the file sets the first rung, or if this kind of rule has no such default with
        the file's method, as `NoTermination` and a rule of the user's own. For a method that learns, a note is added if
        the first rung is so early that the ranks say little about the end.
        """
        if isinstance(rule, Own | NoTermination):
            return rule
        learning = self.learns
        when_by_epochs = rule.first_rung_by_epochs  # "never", "if learning" or "always"
        if not self.names_first_rung and (
            when_by_epochs == "always" or (when_by_epochs == "if learning" and learning)
        ):
            first_rung = {"min_iter": default_first_rung(rule, epochs)}
            rule = replace(rule, **first_rung)
        # () if the rule never acts, which is a mistake by itself
        decision_epochs = compute_decision_epochs(rule, epochs)
        # the first epoch at which the ranks of trials predict those at the end
        ranking_epoch = earliest_ranking_epoch(rule, epochs)
        if learning and decision_epochs and decision_epochs[0] < ranking_epoch:
            if self.names_first_rung:
                hint = f"write min_iter: {ranking_epoch}, or leave it out"
            else:
                hint = "let it begin later"
            place = self.describe_place(decision_epochs[0], epochs)
            self.notes.append(
                f"early_terminate: {rule.type} decides after {place}; ranks may say little so "
                f"early, and {self.file.method} then prefers what starts quickly; {hint}"
            )
        return rule

    def describe_length(self, length: int) -> str:
        """Describe the length of a trial, such as "27 epochs" or "100 hundredths of its minutes".

        ``length`` is in epochs or, if only `minutes` ends trials, in hundredths of the minutes.
        """
        if self.epochs < UNBOUNDED_EPOCHS:
            return counted(length, "epoch")
        return f"{length} hundredths of its minutes"

    def describe_place(self, unit: int, length: int) -> str:
        """Describe a rung, such as "epoch 3 of 27" or "11 % of its minutes".

        ``unit`` and ``length`` are the rung and the length of a trial in epochs or, if only `minutes` ends trials, in
        hundredths of the minutes.
        """
        if self.epochs < UNBOUNDED_EPOCHS:
            return f"epoch {unit} of {length}"
        return f"{unit} % of its minutes"

    def find_longest_epochs(self, entries: list[Entry]) -> int:
        """Return the epochs of the longest trial; add a mistake if a parameter ``epochs`` has unsuitable values.

        Suitable values are whole numbers from 1 to `MAX_EPOCHS`, in a list or a range that is not too long to list.
        Without such a parameter, the epochs are the file's, or `UNBOUNDED_EPOCHS` if only `minutes` ends trials. If the
        parameter has a condition, the file's epochs count as well. After a mistake, the file's epochs are returned.
        """
        entry = next((entry for entry in entries if entry.name == "epochs"), None)
        if entry is None or entry.domain is None:
            return self.epochs
        # () for a continuous range, and for a tied parameter
        values = list_choices(entry.domain) or ()
        counts = []
        for v in values:  # True is an int, too, and equals 1
            if isinstance(v, int) and v is not True and 1 <= v <= MAX_EPOCHS:
                counts.append(v)
        if not values or len(counts) < len(values):
            what = (
                f"overrides the epochs of a trial, expected whole numbers from 1 to {MAX_EPOCHS:,}"
            )
            self.document.add_mistake(entry.path, what, at_key=True)
            return self.file.epochs
        # Trials that the parameter's condition leaves out train the file's epochs.
        return max(*counts, self.file.epochs if entry.condition else 0)


def _find_constant_epochs(file: SweepFile) -> int | None:
    """Return the number of epochs if a parameter ``epochs`` gives the same number to all trials; None otherwise.

    It is the `value` of the parameter, or the only one of its `values`, if this is a whole number of at least 1. The
    result is also None without such a parameter, for a range of one number, and for a parameter with a condition.
    """
    match (file.parameters or {}).get("epochs"):
        case {"when": _}:
            return None
        case {"value": int(epochs)} | {"values": [int(epochs)]} if epochs >= 1:
            return epochs
    return None


def _join_method_names(methods: Iterable[Method]) -> str:
    """Return the names of methods as words of a hint, such as "tpe, gp or nsga2". Raises ValueError for no methods."""
    return join_words([method.name for method in methods], "or")
