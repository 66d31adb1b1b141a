"""Exports a sweep as MLflow runs: one for the sweep, with one child per trial; the only module that knows mlflow.

Earlier exports are recognized by their tags and kept; tags that have changed since, such as a star, are set again. A
trial that has continued or was tried again since, or whose export was interrupted, is exported again, and its old run
is deleted.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from sweep.errors import InputError, StoreError, first_line
from sweep.events import Status, Value
from sweep.export import runs
from sweep.export.runs import ExportedTrial, SweepState, make_allowed_names
from sweep.space.domains import key
from sweep.store.disk import storing
from sweep.store.sweep_info import SweepInfo
from sweep.text import encodable

FORBIDDEN = r"[^/\w.\- :]"  # not allowed in names of parameters and metrics
_LONGEST_NAME, _LONGEST_PARAM, _LONGEST_TAG = 250, 6000, 5000  # maximum number of characters
_MOST_METRICS, _MOST_PARAMS = 900, 100  # maximum number in one request; 1000 together
_ID_TAG, _TRIAL_TAG = "sweep.id", "sweep.trial"
_EXPORTED_TAG, _NOTE_TAG, _ENDED_TAG = "sweep.exported", "sweep.note", "sweep.ended"
_MLFLOW_STATUS = {
    Status.RUNNING: "RUNNING",
    Status.INTERRUPTED: "SCHEDULED",
    Status.COMPLETED: "FINISHED",
    Status.INFEASIBLE: "FINISHED",
    Status.PRUNED: "KILLED",
    Status.DIVERGED: "FAILED",
    Status.OOM: "FAILED",
    Status.FAILED: "FAILED",
}


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The numbers of runs that an export has written and left unchanged, and the names that it has replaced."""

    new: int
    unchanged: int
    renamed: Mapping[str, str]  # names that MLflow does not allow, with their replacements


def make_local_uri(target: Path) -> str:
    """Create the folder ``target`` and return the URI of a SQLite database in it, which is not created.

    A folder that is there is kept. Raises `InputError` if its path has a question mark, so that no URI can name the
    database, and `StoreError` if the folder cannot be created.
    """
    path = target.absolute() / "mlflow.db"
    # a URI's path ends there, so that the database would be created in another place
    if "?" in str(path):
        what = "has a question mark, which the address of a database cannot have in its path"
        raise InputError.one(str(target), what, "name another folder: --output DIR")
    with storing(target):
        target.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{path}"


def export_to_mlflow(sweep: SweepState, uri: str) -> ExportResult:
    """Create or update the runs of a sweep at a tracking URI; nothing is written for a sweep that has not begun.

    Return how many trials were written, how many were left unchanged, and which names were replaced. They are in the
    experiment with the sweep's name, which is created if necessary. Sets environment variables of MLflow, and the
    levels of its log messages, in this process.

    Raises `InputError` if the address cannot be used or is a folder, the experiment has been deleted there, or MLflow
    is not installed, and `StoreError` if MLflow refuses a run.
    """
    # all addresses but `databricks` have ://, so anything else is taken for the path of a folder
    if re.match(r"^(file:|\.{0,2}/)", uri) or ("://" not in uri and uri != "databricks"):
        hint = "a folder of files is no longer written by MLflow; give sqlite:///PATH.db, http://HOST:PORT, or none"
        raise InputError.one(
            f"--tracking-uri {uri}", "is no address of a tracking server or database", hint
        )
    if sweep.tables.history.started is None:
        return ExportResult(0, 0, {})  # its run is identified by the time of its start
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # must be set before the import
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's warnings about its own dependencies
        library = runs.import_extra("mlflow.tracking", "mlflow-skinny", "mlflow")
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        try:
            client = library.MlflowClient(tracking_uri=uri)
            experiment = _get_experiment(client, sweep, uri)
        except InputError:  # the experiment has been deleted; the error says what to do
            raise
        except Exception as error:  # from a database driver, the network or MLflow
            what = first_line(error)
            raise InputError.one(
                f"--tracking-uri {uri}", what, "is that the address of MLflow?"
            ) from error
        try:
            return _Export(client, experiment, sweep).export_all()
        except Exception as error:
            raise StoreError(f"{uri}: MLflow could not take a run: {first_line(error)}") from error


class _Export:
    """One export of a sweep to an experiment of MLflow, in which each trial is a run below the run of the sweep."""

    def __init__(self, client: Any, experiment: str, sweep: SweepState) -> None:
        self._client = client
        self._experiment = experiment
        self._sweep = sweep
        self._entities = runs.import_extra("mlflow.entities", "mlflow-skinny", "mlflow")
        names = []
        for name in sweep.tables.trials.column_names:
            if name.startswith("param."):
                names.append(name.partition(".")[2])
        # by the name that sweep uses, the one that MLflow allows; likewise for metrics
        self._param_names = make_mlflow_names(names)
        tested = dict.fromkeys(f"test/{name}" for one in sweep.sweep.trials for name in one.tested)
        scalars = runs.name_scalars(sweep.tables.metrics).values()
        self._metric_names = make_mlflow_names([*scalars, *tested])

    def export_all(self) -> ExportResult:
        """Write the run of the sweep and those of trials that are new or have changed; return the numbers of trials.

        The result says how many trials were written, how many were left unchanged, and which names MLflow does not
        allow. The old run of a changed trial is deleted first. If only the trial's note or other tags have changed, the
        run stays and gets the new ones.
        """
        earlier_runs = self._find_runs()
        parent = self._write_parent(earlier_runs.pop("", None))  # the id of the sweep's own run
        new = unchanged = 0
        for run in self._sweep.runs():
            old = earlier_runs.get(str(run.trial.trial))
            if old is not None and self._is_current(old, run):
                self._update_tags(old, self._make_trial_tags(run, parent))
                self._add_test_metrics(old, run)
                self._update_note(old, run.trial.note)
                unchanged += 1
                continue
            if old is not None:
                self._client.delete_run(old.info.run_id)
            self._write_trial(run, parent)
            new += 1
        # each name of a parameter or metric with the one that MLflow allows, which is mostly the same
        allowed_names = {**self._param_names, **self._metric_names}
        renamed = {name: allowed for name, allowed in allowed_names.items() if name != allowed}
        return ExportResult(new, unchanged, renamed)

    def _find_runs(self) -> dict[str, Any]:
        """Return the runs of earlier exports of this sweep by trial number as text; the key "" is the sweep's own run.

        It is empty if the sweep was never exported to this experiment. Deleted runs are not in it.
        """
        by_trial: dict[str, Any] = {}
        token = None  # of the next page of results; None for the first, and empty after the last
        while True:
            page = self._client.search_runs(
                [self._experiment],
                f"tags.`{_ID_TAG}` = '{self._sweep.identity}'",
                max_results=1000,
                page_token=token,
            )
            for run in page:
                by_trial[run.data.tags.get(_TRIAL_TAG, "")] = run
            token = page.token
            if not token:
                return by_trial

    def _write_parent(self, run: Any) -> str:
        """Create or update the run of the sweep itself, with its best values and provenance; return its id.

        ``run`` is its run of an earlier export, or None, in which case it is created. Its status is running, finished
        or killed, as the sweep runs, has finished, or has ended or stopped in another way.
        """
        sweep = self._sweep
        started = sweep.tables.history.started or 0.0
        last = sweep.tables.history.last
        if run is None:
            run = self._client.create_run(
                self._experiment, _to_ms(started), {_ID_TAG: sweep.identity}, sweep.name
            )
        run_id = str(run.info.run_id)
        # the best configuration; the first one of a Pareto front
        best = next(iter(sweep.ranking.best), None)
        tags = {
            **_make_provenance_tags(sweep.info),
            "sweep.state": sweep.state,
            "sweep.results": str(sweep.sweep.folder.path),
        }
        if best is not None:
            tags["sweep.best_trial"] = str(best.trials[0].trial)
            for score in best.scores:
                tags[f"sweep.best.{self._metric_names[score.metric]}"] = repr(score.mean)
        known_tags = {name: text for name, text in tags.items() if text}  # none without a text
        self._client.log_batch(run_id, tags=self._make_tags(known_tags))
        if sweep.state == "running":
            self._client.update_run(run_id, "RUNNING")
        else:
            if sweep.state == "finished":
                ended = "FINISHED"
            else:
                ended = "KILLED"
            self._client.set_terminated(run_id, ended, None if last is None else _to_ms(last))
        return run_id

    def _write_trial(self, run: ExportedTrial, parent: str) -> None:
        """Create the run of a trial below the run with the id ``parent``, with all that is known of the trial.

        It gets the parameters, the metrics by epoch and those on the test data, tags, the note, and a status. The tag
        that says that the export of the run is complete is set after all parameters and metrics.
        """
        trial = run.trial
        tags = {**self._make_trial_tags(run, parent), **_make_note_tags(trial.note)}
        name = f"{self._sweep.name}-{trial.trial:05d}"
        created = self._client.create_run(
            self._experiment, _to_ms(run.started), _shorten_tags(tags), name
        )
        run_id = created.info.run_id
        params = [
            self._entities.Param(self._param_names[name], _format_param(value))
            for name, value in run.params.items()
        ]
        metrics = chain(self._list_metrics(run), self._list_test_metrics(run))
        # each request has a batch of both, as long as there are some; MLflow limits the size of a request
        batches = zip_longest(
            _split_into_batches(metrics, _MOST_METRICS),
            _split_into_batches(params, _MOST_PARAMS),
            fillvalue=(),
        )
        for some_metrics, some_params in batches:
            self._client.log_batch(run_id, metrics=some_metrics, params=some_params)
        # set last; a run without it was interrupted
        self._client.set_tag(run_id, _EXPORTED_TAG, self._describe_state(run))
        status = _MLFLOW_STATUS[trial.status]
        if run.ended is None or trial.status is Status.INTERRUPTED:
            self._client.update_run(run_id, status)
        else:
            self._client.set_terminated(run_id, status, _to_ms(run.ended))

    def _make_trial_tags(self, run: ExportedTrial, parent: str) -> dict[str, str]:
        """Return the tags of a trial's run below the run with the id ``parent``, without those of its note.

        Texts are cut to the 5000 characters that MLflow allows.
        """
        trial = run.trial
        tags = {
            "mlflow.parentRunId": parent,
            _ID_TAG: self._sweep.identity,
            _TRIAL_TAG: str(trial.trial),
            _ENDED_TAG: _format_end(run),
            "sweep.trial_id": trial.trial_id,
            "sweep.role": trial.role.value,
            "sweep.repeat": str(trial.repeat),
            "sweep.seed": str(trial.seed),
            **({} if trial.fold is None else {"sweep.fold": str(trial.fold)}),
            "sweep.status": trial.status.value,
            "sweep.reason": trial.status_reason,
            **{f"sweep.{name}": str(fact) for name, fact in run.facts.items()},
        }
        # one of the facts, but `_make_note_tags` and `_update_note` care for it
        tags.pop(_NOTE_TAG, None)
        return _shorten_tags(tags)

    def _update_tags(self, old: Any, tags: Mapping[str, str]) -> None:
        """Set those of ``tags`` that the run ``old`` of an earlier export lacks or has with another text.

        Tags of facts that are no more, such as a star, are deleted. The tag of the note stays.
        """
        earlier_tags = old.data.tags
        changed = {name: text for name, text in tags.items() if earlier_tags.get(name, "") != text}
        if changed:
            self._client.log_batch(old.info.run_id, tags=self._make_tags(changed))
        for fact in runs.FACTS:
            name = f"sweep.{fact}"
            if name in earlier_tags and name not in tags and name != _NOTE_TAG:
                self._client.delete_tag(old.info.run_id, name)

    def _update_note(self, old: Any, note: str) -> None:
        """Set the note of the run ``old`` if it differs from that of the last export; "" empties it.

        If the note has not changed since, a text that was written in MLflow meanwhile stays.
        """
        if old.data.tags.get(_NOTE_TAG, "") != encodable(note)[:_LONGEST_TAG]:
            for name, text in _shorten_tags({_NOTE_TAG: note, "mlflow.note.content": note}).items():
                self._client.set_tag(old.info.run_id, name, text)

    def _is_current(self, old: Any, run: ExportedTrial) -> bool:
        """Return whether the run ``old`` has all epochs of a trial, which has not continued or ended anew since then.

        It has not if its export was interrupted.
        """
        ended = _format_end(run)
        # runs of earlier releases do not have the time of the end
        return bool(
            old.data.tags.get(_EXPORTED_TAG) == self._describe_state(run)
            and old.data.tags.get(_ENDED_TAG, ended) == ended
        )

    def _describe_state(self, run: ExportedTrial) -> str:
        """Return a text that changes with the trial's status, its number of epochs, and the status it has in MLflow."""
        return f"{run.trial.status.value} {run.trial.epochs} {_MLFLOW_STATUS[run.trial.status]}"

    def _list_metrics(self, run: ExportedTrial) -> Iterator[Any]:
        for epoch in run.epochs:
            for name, value in epoch.scalars.items():
                yield self._entities.Metric(
                    self._metric_names[name], value, _to_ms(epoch.time), epoch.number
                )

    def _list_test_metrics(self, run: ExportedTrial) -> list[Any]:
        """Return the metrics of a trial's model on the test data, as metrics of MLflow at its last epoch.

        Their names begin with ``test/``, and their time is that of the last epoch or, without one, of the start. Return
        [] if the model was not tested.
        """
        time = run.epochs[-1].time if run.epochs else run.started
        return [
            self._entities.Metric(
                self._metric_names[f"test/{name}"], value, _to_ms(time), run.trial.epochs
            )
            for name, value in run.trial.tested.items()
        ]

    def _add_test_metrics(self, old: Any, run: ExportedTrial) -> None:
        """Add the metrics on the test data that the run ``old`` lacks or has with other values.

        A model may be tested long after its trial was exported. ``run`` is the trial as it is now.
        """
        # as texts, because NaN differs from itself
        known = {name: repr(value) for name, value in old.data.metrics.items()}
        new = [one for one in self._list_test_metrics(run) if known.get(one.key) != repr(one.value)]
        if new:
            self._client.log_batch(old.info.run_id, metrics=new)

    def _make_tags(self, tags: Mapping[str, str]) -> list[Any]:
        run_tags = []
        for name, value in _shorten_tags(tags).items():
            run_tags.append(self._entities.RunTag(name, value))
        return run_tags


def _get_experiment(client: Any, sweep: SweepState, uri: str) -> str:
    """Return the id of the experiment with the sweep's name, creating it if necessary.

    A new one keeps its artifacts beside the database if that is a SQLite file, otherwise where MLflow chooses. Raises
    InputError if it was deleted.
    """
    experiment = client.get_experiment_by_name(sweep.name)
    if experiment is None:
        artifacts = None
        if uri.startswith("sqlite:///"):  # otherwise MLflow uses a folder in the current directory
            artifacts = (
                Path(uri.removeprefix("sqlite:///")).absolute().parent / "artifacts"
            ).as_uri()
        return str(client.create_experiment(sweep.name, artifacts))
    if experiment.lifecycle_stage != "active":
        hint = f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
        raise InputError.one(
            f"--tracking-uri {uri}", f"its experiment {sweep.name} has been deleted there", hint
        )
    return str(experiment.experiment_id)


def make_mlflow_names(names: Sequence[str]) -> dict[str, str]:
    """Map each name to one that MLflow allows: forbidden characters and parts of paths such as ``..`` become ``_``.

    Allowed names are unchanged, longer ones are cut to 250 characters, and those that would be equal get a number.
    """
    return make_allowed_names(
        names, rf"{FORBIDDEN}|^/|^\.\.|^\.(?=/|$)|(?<=/)\.\.?(?=/|$)|(?<=/)/|/$", _LONGEST_NAME
    )


def _make_provenance_tags(info: SweepInfo) -> dict[str, str]:
    """Return MLflow's tags for the code, the description and the commit, and tags with the versions and the host.

    The tags of the commit are left out if nothing is known about it, and those of versions and host likewise. If only
    some of them are known, the others are the text "None".
    """
    tags = {"mlflow.source.type": "LOCAL"}
    match info.spec:
        case {"trainable": str(trainable), "method": str(method), "description": str(description)}:
            tags |= {
                "mlflow.source.name": trainable,
                "sweep.method": method,
                "mlflow.note.content": description,
            }
    if known := info.provenance:
        git = known.get("git")
        if isinstance(git, dict):
            tags |= {
                f"mlflow.source.git.{name}": str(git.get(name))
                for name in ("commit", "branch", "dirty")
            }
        tags |= {
            f"sweep.{name}": str(known.get(name))
            for name in ("python", "platform", "hostname", "packages")
        }
    return tags


def _make_note_tags(note: str) -> dict[str, str]:
    """Return the tags of a trial's note: sweep's own, and the one that MLflow shows; {} if ``note`` is ""."""
    if not note:
        return {}
    return {_NOTE_TAG: note, "mlflow.note.content": note}


def _format_param(value: Value) -> str:
    return (value if isinstance(value, str) else key(value))[:_LONGEST_PARAM]


def _format_end(run: ExportedTrial) -> str:
    """Return the time of a trial's end or last interruption as text, in ms since 1970; "" while it is running."""
    return "" if run.ended is None else str(_to_ms(run.ended))


def _shorten_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: encodable(text)[:_LONGEST_TAG] for name, text in tags.items()}


def _split_into_batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def _to_ms(seconds: float) -> int:
    return round(seconds * 1000)
