"""Exports a trial into a folder: verified model files, a sweep file that trains the trial again, and a model card."""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep import analysis, runner
from sweep.analysis import ranking, verdict
from sweep.analysis.ranking import RankedConfiguration, Ranking
from sweep.backends import checkpoints
from sweep.contract import Exported
from sweep.errors import InputError, RefusedError, in_short
from sweep.events import Value
from sweep.inspection import Source, find_import_folder
from sweep.runner import restoring
from sweep.runner.restoring import KeptCheckpoint, Restored, Which
from sweep.spec import resolved
from sweep.store.disk import get_process_name, removed_if_it_fails
from sweep.store.folder import ResultsFolder
from sweep.text import moment, printable

TO_FILL_IN = "**To be filled in by the author.**"
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|~]")


@dataclass(frozen=True, slots=True)
class CardFacts:
    """The facts that a model card shows."""

    kept: KeptCheckpoint
    ranking: Ranking  # of the sweep, which has the trial
    exported: Exported
    source: Source  # of the trainable
    notes: tuple[str, ...]
    with_checkpoint: bool  # whether the checkpoint was copied as well


def format_card(facts: CardFacts) -> str:
    """Return the model card in Markdown; names and values are escaped so that they do not format anything.

    What only the author knows, such as the intended use, is marked as to be filled in. The section of notes is left out
    if there are none. Reads sweep.json, and the files of the source for their hash.
    """
    kept = facts.kept
    parts = [
        _format_front_matter(facts),
        f"# {_escape_markdown(kept.sweep.folder.name)}, trial {kept.trial}\n",
        _summarize_winner(facts),
        _format_section("Use", [_format_loading_code(facts)]),
        _format_section(
            "Intended use",
            [f"{TO_FILL_IN} For what and for whom is this model meant, and for what is it not?"],
        ),
        _format_section("Result", _format_result(facts)),
        _format_section("Data", _format_data(facts)),
        _format_section("Preprocessing", _format_preprocessing(facts)),
        _format_section(
            "Hyperparameters",
            [_format_table(("parameter", "value"), _format_values(kept.started.params))],
        ),
        _format_section("Training", _format_training(facts)),
        _format_section("Provenance", _format_provenance(facts)),
    ]
    if facts.notes:
        parts.append(
            _format_section("Notes", [f"- {_escape_markdown(note)}" for note in facts.notes])
        )
    return "\n".join(part for part in parts if part)


def _format_front_matter(facts: CardFacts) -> str:
    """Return the block of YAML that a model hub reads, with the library that loads the model."""
    if "keras" in facts.exported.files:
        library = "keras"
    elif facts.exported.files:
        library = "tensorflow"
    else:  # only a checkpoint
        library = "other"
    lines = [
        f"library_name: {library}",
        "license: unknown  # to be filled in by the author",
        "tags: [sweep]",
    ]
    return "\n".join(["---", *lines, "---", ""])


def _summarize_winner(facts: CardFacts) -> str:
    """Return the first paragraphs: what was trained, the sweep's description, and a warning for `all_data`."""
    kept = facts.kept
    spec = facts.kept.sweep.spec
    model = facts.exported.data.get("model", "")  # a description of it
    trained = f"Trained by {_format_code(spec.trainable)} in the sweep {_format_code(kept.sweep.folder.name)}"
    epochs = f"after epoch {kept.epoch}"
    if spec.counts_epochs:
        epochs += f" of {spec.trial_epochs(kept.started.params)}"
    if model:
        end = f": {_escape_markdown(model)}."
    else:
        end = "."
    lines = [f"{trained}, {epochs}{end}"]
    if spec.description:
        lines.append(_escape_markdown(spec.description))
    if spec.training.get("all_data"):
        lines.append(
            "**Trained on all data: nothing was held out, and no number below is of new examples.**"
        )
    return "\n\n".join(lines) + "\n"


def _format_loading_code(facts: CardFacts) -> str:
    """Return how to load each exported format: code, and what must be known about it."""
    blocks = []
    for lines in facts.exported.usage.values():
        blocks.append(_format_block(lines, "python"))
    if "saved_model" in facts.exported.files:
        blocks.append("For TensorFlow Serving, mount `saved_model` as `/models/NAME/1`.")
    if facts.exported.needs:
        modules = ", ".join(map(_format_code, facts.exported.needs))
        blocks.append(
            f"`model.keras` needs the author's {modules}, and what these import, to be importable."
        )
    if "keras" in facts.exported.files:
        blocks.append(
            "The model is for inference, and not compiled: compile it to evaluate or to train it on."
        )
    if facts.with_checkpoint:
        blocks.append(
            "`checkpoint/` holds what the trainable saved; only its own `restore` reads it."
        )
    return "\n\n".join(blocks)


def _format_result(facts: CardFacts) -> list[str]:
    """Return the parts of the section on the result: the verdict, the objectives, all metrics, and the export's check.

    Raises StopIteration if the ranking lacks the trial.
    """
    kept = facts.kept
    configuration = next(row for row in facts.ranking.rows if row.has_trial(kept.trial))
    answer = verdict.summarize_ranking(facts.ranking)
    rank = f"This configuration ranks {configuration.rank} of {len(facts.ranking.rows)}."
    objectives = []
    for name, goal in facts.ranking.objectives:
        value = _format_number(kept.metrics.get(name))
        objectives.append((name, goal, value, *_format_repeats(configuration, name)))
    head = (
        "objective",
        "goal",
        f"after epoch {kept.epoch}",
        "mean of its seeds",
        "95 % interval",
        "seeds",
    )
    metrics = []
    for name, number in kept.metrics.items():
        metrics.append((name, _format_number(number)))
    lines = [
        f"{_escape_markdown(answer)} {rank}".strip(),
        _format_table(head, objectives),
        _format_table(("metric", "value"), metrics),
    ]
    if facts.exported.differences:
        checked = []
        for kind, difference in facts.exported.differences.items():
            checked.append(f"{_format_code(facts.exported.files[kind])} {difference:.1e}")
        lines.append(
            f"Checked on {_escape_markdown(facts.exported.compared)} in a fresh process: the largest difference to the "
            f"predictions of the trial's model is {', '.join(checked)}."
        )
    return lines


def _format_repeats(row: RankedConfiguration, metric: str) -> tuple[str, str, str]:
    """Return mean, interval and number of a configuration's scores for an objective; "" three times without scores.

    The interval is "" if there is none, as with one seed.
    """
    for score in row.scores:
        if score.metric == metric:
            if score.interval is None:
                interval = ""
            else:
                interval = f"{score.interval[0]:.6g} to {score.interval[1]:.6g}"
            return _format_number(score.mean), interval, str(len(score.values))
    return "", "", ""


def _format_data(facts: CardFacts) -> list[str]:
    """Return the parts of the section on the data: a table of its parts and its fingerprint, if known, and what lacks.

    ``exported.data`` also has the model's description, which is shown elsewhere.
    """
    rows = []
    for name, value in facts.exported.data.items():
        if name != "model":
            rows.append((name, value))
    if facts.kept.facts.data:
        rows.append(("fingerprint", facts.kept.facts.data))
    return [
        _format_table(("part", "what"), rows),
        f"{TO_FILL_IN} Where does it come from, and under which licence?",
    ]


def _format_preprocessing(facts: CardFacts) -> list[str]:
    """Return the parts of the section on preprocessing: where its code is, and the author's description, if any."""
    module, _, name = facts.kept.sweep.spec.trainable.partition(":")
    path = facts.source.files.get(module)
    if path:
        file = f", file {_format_code(path.name)}"
    else:
        file = ""
    lines = [
        f"What `data()` of {_format_code(name)} (module {_format_code(module)}{file}) does to the inputs is not part "
        "of the model, and whoever predicts must do the same; layers of the model, such as a TextVectorization or a "
        f"Normalization, are. SHA-256 of all its code: {_format_code(facts.source.digest())}.",
        "Augmentation, dropout and other noise of training are off when the model predicts.",
    ]
    if facts.exported.preprocessing:
        lines += ["In the author's words:", _format_block(facts.exported.preprocessing, "text")]
    return lines


def _format_training(facts: CardFacts) -> list[str]:
    """Return, in a list, the table of settings and facts of the training; those that are None are left out."""
    kept = facts.kept
    spec = facts.kept.sweep.spec
    ran = facts.kept.facts
    settings = {}
    for key, value in spec.training.items():
        settings[f"training.{key}"] = value
    rows: dict[str, Value] = {
        "seed": kept.started.seed,
        "repeat": kept.started.repeat,
        "epochs": spec.trial_epochs(kept.started.params) if spec.counts_epochs else None,
        "minutes": spec.minutes,
        **settings,
        "devices": ran.devices,
        "strategy": ran.strategy,
        "replicas": ran.num_replicas,
        "precision": ran.precision,
        "micro-batches that a batch was cut into": kept.accumulate if kept.accumulate > 1 else None,
        "status": kept.status.value,
    }
    known = {}
    for key, value in rows.items():
        if value is not None:
            known[key] = value
    return [_format_table(("", ""), _format_values(known))]


def _format_provenance(facts: CardFacts) -> list[str]:
    """Return the parts of the section on provenance: a table of what sweep.json has about the sweep, and a hint."""
    info = facts.kept.sweep.folder.read_info()
    about, origin = info.provenance, info.origin
    git = _require_mapping(about.get("git"))
    packages = _require_mapping(about.get("packages"))
    commit = str(git.get("commit", "unknown"))
    if git.get("dirty"):
        commit += " and uncommitted changes"
    gpus = about.get("gpus")
    gpu_names: list[str] = []
    if isinstance(gpus, list):
        for gpu in gpus:
            gpu_names.append(str(_require_mapping(gpu).get("name")))
    facts_by_name: dict[str, object] = {
        "sweep": facts.kept.sweep.folder.name,
        "trial": f"{facts.kept.trial} ({facts.kept.started.trial_id})",
        "began": moment(facts.kept.started.time),
        "retrained from": f"{origin.get('sweep')}, trial {origin.get('trial')}" if origin else None,
        "git commit": commit,
        "machine": about.get("platform"),
        "CPU cores": about.get("cpus"),
        "GPUs": ", ".join(gpu_names),
        "python": about.get("python"),
        "packages": ", ".join(f"{name} {version}" for name, version in packages.items() if version),
    }
    rows = []
    for name, value in facts_by_name.items():
        if value not in (None, ""):
            rows.append((name, str(value)))
    return [
        _format_table(("", ""), rows),
        "The same configuration as a sweep of one trial: `sweep.yaml`.",
    ]


def _require_mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _format_values(values: Mapping[str, Value]) -> list[tuple[str, str]]:
    return [(name, _format_value(value)) for name, value in values.items()]


def _format_value(value: Value) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _format_number(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"


def _format_section(title: str, parts: Iterable[str]) -> str:
    """Return a section with a title and those of its ``parts`` that are not empty, each a paragraph or list item."""
    body = list(parts)
    if body and body[0].startswith("- "):  # the items of one list
        between = "\n"
    else:
        between = "\n\n"
    return f"## {title}\n\n{between.join(part for part in body if part)}\n"


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, with the cells of ``rows`` as code; "" without rows."""
    if not rows:
        return ""
    lines = [" | ".join(map(_escape_markdown, head)), " | ".join("---" for _ in head)]
    for row in rows:
        lines.append(" | ".join(_format_cell(text) for text in row))
    return "\n".join(f"| {line} |" for line in lines)


def _format_cell(text: str) -> str:
    return _format_code(text) if text else ""


def _escape_markdown(value: str) -> str:
    """Return a text on one line in which the characters that would format it in Markdown are escaped.

    Runs of spaces and line ends become one space each, and unprintable characters are replaced (`printable`).
    """
    flat = " ".join(printable(value).split())
    return _MARKDOWN.sub(r"\\\g<0>", flat)


def _format_code(value: str) -> str:
    """Return a text on one line as inline code in Markdown, with "|" escaped for tables.

    Runs of spaces and line ends become one space each, and unprintable characters are replaced (`printable`).
    """
    flat = " ".join(printable(value).split()).replace("|", "\\|")
    fence = _choose_fence(flat, "`")
    if flat[:1] == "`" or flat[-1:] == "`":  # it would become a part of the fence
        space = " "
    else:
        space = ""
    return f"{fence}{space}{flat}{space}{fence}"


def _choose_fence(value: str, fence: str) -> str:
    """Return ``fence``, with as many more backquotes as it takes so that it does not occur in the text ``value``."""
    while fence in value:
        fence += "`"
    return fence


def _format_block(value: str, language: str) -> str:
    fence = _choose_fence(value, "```")
    return f"{fence}{language}\n{printable(value).strip()}\n{fence}"


FORMATS = ("keras", "saved_model", "onnx", "checkpoint")
DEFAULT = ("keras", "saved_model")
CARD, SWEEP = "MODEL_CARD.md", "sweep.yaml"
CLOSE = 1e-5  # relative tolerance of metrics; absolute for values below 1
LONGEST = 80  # maximum number of characters of the sweep's name in the file's name


@dataclass(frozen=True, slots=True)
class Winner:
    """An exported trial, and the results of its checks."""

    folder: Path
    sweep: str
    trial: int
    epoch: int
    metrics: Mapping[str, float]  # as logged for that epoch
    exported: Exported
    notes: tuple[str, ...]


def export_winner(
    folder: ResultsFolder,
    target: Path,
    trial: int | None = None,
    epoch: Which = "last",
    formats: Sequence[str] = DEFAULT,
) -> Winner:
    """Export the model of a trial, by default the best one, into the new folder ``target``.

    ``epoch`` selects its checkpoint: a number, "last" or "best". The folder also gets a model card and sweep.yaml. The
    trial's code is imported here, and its own ``export`` writes the files, except for ``checkpoint``, which is a copy.
    That of a `KerasTrainable` loads each file in a fresh process and compares its predictions with the model's. The
    model must have the logged metrics, unless the trial was trained on other devices. A failed export leaves nothing
    behind but folders above ``target`` that did not exist.

    Raises `InputError` if a check fails, ``target`` exists or its folder cannot be made, a format is unknown, or there
    is nothing to export. Raises `StoreError` if the log is missing or damaged, and OSError if the disk becomes full.
    """
    check_export(target, formats)
    kept = restoring.find_checkpoint(folder, trial, epoch)
    # beside ``target``, which appears only when all of it is written and checked
    aside = target.parent / f".{target.name}.{get_process_name()}"
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise InputError.one(
            str(target), f"cannot be written ({error.strerror})", "name another folder"
        ) from error
    with removed_if_it_fails(aside):
        winner = _write_export(kept, aside, target, formats)
        aside.rename(target)
    return winner


def check_export(target: Path, formats: Sequence[str]) -> None:
    """Raise `InputError` if a format is unknown or no format is named, and `RefusedError` if ``target`` exists."""
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        if unknown:
            what = f"{unknown[0]!r} is no format"
        else:
            what = "no format is named"
        raise InputError.one(
            "--format", what, f"expected some of {', '.join(FORMATS)}, with commas between them"
        )
    if target.exists() or target.is_symlink():
        raise RefusedError.one(str(target), "exists already", "name a new folder")


def _write_export(
    checkpoint: KeptCheckpoint, aside: Path, target: Path, formats: Sequence[str]
) -> Winner:
    """Write the export into the existing folder ``aside`` and check it; return the result.

    ``target`` is only the folder that the result names. Raises `InputError` if a check fails.
    """
    log = aside / ".debug.log"  # keeps what TensorFlow says from the terminal
    with runner.redirected(log):
        restored = restoring.begin_trial(checkpoint)
        exported = _export_model(
            restored, aside, [name for name in formats if name != "checkpoint"]
        )
    log.unlink()
    notes = [*restored.notes, *exported.notes]
    _check_metrics(checkpoint, exported, notes)
    if "checkpoint" in formats:
        # without the file in which sweep describes it, which no trainable reads
        shutil.copytree(
            checkpoint.checkpoint,
            aside / "checkpoint",
            ignore=shutil.ignore_patterns(checkpoints.MANIFEST),
        )
    (aside / SWEEP).write_text(_format_sweep_file(restored), encoding="utf-8")
    ranked = ranking.rank([analysis.read_sweep(checkpoint.sweep.folder)])
    facts = CardFacts(
        checkpoint, ranked, exported, restored.source, tuple(notes), "checkpoint" in formats
    )
    (aside / CARD).write_text(format_card(facts), encoding="utf-8")
    return Winner(
        target,
        checkpoint.sweep.folder.name,
        checkpoint.trial,
        checkpoint.epoch,
        checkpoint.metrics,
        exported,
        tuple(notes),
    )


def _export_model(restored: Restored, aside: Path, formats: Sequence[str]) -> Exported:
    """Have the trainable export its model to the folder ``aside``; return what it says of that.

    Without ``formats``, nothing is exported, and the result is empty. Raises `InputError` if the trainable has no
    method ``export``, or if that raises or returns anything else than `Exported`.
    """
    if not formats:
        return Exported(files={})
    write = getattr(restored.trainable, "export", None)
    kept = restored.kept
    if not callable(write):
        kind = kept.sweep.spec.trainable
        what = f"{kind} has no export(folder, formats) of sweep.contract.Exporting, so that nothing knows its model"
        raise InputError.one(
            kept.where,
            what,
            f"its checkpoint can be copied: --format checkpoint ({kept.checkpoint})",
        )
    try:
        exported = write(aside, tuple(formats))
    except Exception as error:  # any error of the user's code
        # by name: it belongs to `trainables`, which is not imported here
        if type(error).__name__ == "NotExportable":
            what = str(error)
        else:
            what = in_short(error)
        raise InputError.one(kept.where, f"not exported: {what}") from error
    if not isinstance(exported, Exported):
        returned = type(exported).__name__
        what = f"{kept.sweep.spec.trainable}.export() returned {returned}, expected sweep.contract.Exported"
        raise InputError.one(kept.where, what)
    return exported


def _check_metrics(checkpoint: KeptCheckpoint, exported: Exported, notes: list[str]) -> None:
    """Compare the model's metrics with those in the log. Raises InputError if one differs by more than 1e-5.

    The tolerance is relative to the logged value, and absolute for values below 1. NaN equals NaN. Metrics that only
    one of them has are not compared. If one of ``notes`` begins with "trained on ", which tells of other devices,
    nothing is raised, and a note of up to three differences is added to ``notes``.
    """
    wrong = []
    for name, value in exported.metrics.items():
        if name in checkpoint.metrics and not _are_close(value, checkpoint.metrics[name]):
            wrong.append(f"{name} is {value:.9g}, {checkpoint.metrics[name]:.9g} in the log")
    if not wrong:
        return
    if any(note.startswith("trained on ") for note in notes):
        notes.append(f"evaluated here {'; '.join(wrong[:3])}")
        return
    why = "; ".join(notes)
    raise InputError.one(
        checkpoint.where,
        f"not exported: its model is not what was validated: {'; '.join(wrong[:3])}",
        why,
    )


def _are_close(a: float, b: float) -> bool:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    if math.isinf(b):  # the tolerance would be infinite as well
        return False
    return abs(a - b) <= CLOSE * max(1.0, abs(b))


def _format_sweep_file(restored: Restored) -> str:
    """Return the text of a sweep file that trains this trial alone or, with folds, the trials of all its folds.

    Running it reproduces the numbers, unless its comments say otherwise. It is named after the sweep, whose name is cut
    to 80 characters, and the trial.
    """
    kept = restored.kept
    spec, sweep = kept.sweep.spec, kept.sweep
    module = spec.trainable.partition(":")[0]
    if kept.facts.reproducible:
        again = "the same numbers on the same hardware"
    else:
        again = "never the same numbers twice"
    file = restored.source.files.get(module)
    if file is None:  # only the reader knows where the module is
        root = "FOLDER"
    else:
        # to be pasted into a shell
        root = shlex.quote(str(find_import_folder(file.absolute(), module)))
    comments = [
        f"Trial {kept.trial} of the sweep {spec.name}, as it was trained: {again}.",
        f"Where {module} cannot be imported: PYTHONPATH={root} python -m sweep run {SWEEP}",
    ]
    if kept.started.parent is not None:
        comments[0] = (
            f"The last parameters of trial {kept.trial} of the sweep {spec.name}. It was a copy: trial "
            f"{kept.started.parent} had trained {kept.started.parent_epoch} epochs with others. "
            "This trains another model."
        )
    if sweep.simulated_gpus:
        comments.append(f"It was rehearsed with --simulate-gpus {sweep.simulated_gpus}.")
    if kept.accumulate > 1:
        comments.append(
            f"Its batches did not fit and were cut into {kept.accumulate}; elsewhere they may fit."
        )
    fold = kept.started.fold
    if fold is not None:
        comments.append(
            f"It is one of {spec.folds} folds, which are trained together: trial {fold} is this one."
        )
    name = f"{spec.name[:LONGEST]}-trial-{kept.trial}"
    folds = None if fold is None else spec.folds
    keys = resolved.make_trial_file(spec, kept.started.params, kept.started.seed, name, folds)
    return resolved.format_sweep_file(keys, [*comments, *restored.notes])
