"""``submit`` and ``logs``: send a sweep with its code to a Ray cluster, and control submitted sweeps.

The files of the project are packed into one archive. Unchanged files give an identical archive, which is not sent again
to a cluster that has it.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shlex
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from sweep import interruption
from sweep.cli import options
from sweep.errors import InputError, InterruptedByUser, RefusedError, first_line
from sweep.text import printable

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    from sweep.backends.ray_tune.jobs import Jobs, SweepJob
    from sweep.events import Params
    from sweep.runner import earlier_times
    from sweep.spec import Spec


MOST_BYTES = 100 << 20
"""Ray's limit: a cluster refuses a larger package, with a less clear error."""

_SECRET = [
    ".env",
    ".env.*",
    ".netrc",
    ".git-credentials",
    ".ssh/",
    ".aws/",
    ".azure/",
    ".kube/",
    ".gnupg/",
]
# patterns of names that are sent only if --include names them
_NEVER = [
    *_SECRET,
    ".git/",
    "__pycache__/",
    "*.pyc",
    ".venv/",
    "venv/",
    "node_modules/",
    ".ipynb_checkpoints/",
    ".*_cache/",
    ".DS_Store",
]
_LARGEST_NAMED = 5  # how many files an error about the size names
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip archive can store


@dataclass(frozen=True, slots=True)
class CodePackage:
    """The files of a project that are sent to a cluster, and the ones that are left out."""

    root: Path
    files: tuple[Path, ...]  # relative to `root`
    left_out: tuple[str, ...]  # files and folders that are left out by a rule, relative to `root`

    @classmethod
    def collect(cls, root: Path, include: Sequence[str] = ()) -> CodePackage:
        """Collect the files of a project, without those that ``.gitignore`` names, secrets, caches and results.

        Virtual environments, and links that lead out of ``root``, are left out, too. ``include`` names files and
        folders below ``root`` that are sent in any case, a folder with everything in it, even secrets. The files are
        only listed, not read. Raises `InputError` if one of ``include`` does not exist below ``root``, if ``root`` is
        the home folder or the root of the disk, or if the files exceed 100 MiB before they are compressed.
        """
        root = root.resolve()
        if root in (Path.home().resolve(), Path(root.anchor)):
            hint = "make a folder for the project, and type the command there"
            raise InputError.one(
                str(root), "is not a project folder: everything in it would be sent", hint
            )
        files = set[Path]()
        left_out = list[str]()
        for path, is_sent in _walk_files(root, root, _read_ignore_rules_above(root)):
            relative = path.relative_to(root)
            if is_sent:
                files.add(relative)
            else:
                left_out.append(relative.as_posix() + ("/" if path.is_dir() else ""))
        for name in include:
            path = (root / name).resolve()
            if not path.exists() or not path.is_relative_to(root):
                raise InputError.one(
                    f"--include {name}", f"is not below {root}", "give a path below the project"
                )
            # without rules: what is named is sent as a whole
            found = path.rglob("*") if path.is_dir() else [path]
            files |= {one.relative_to(root) for one in found if one.is_file()}
            # A folder of which only a part is named is still left out.
            left_out = [one for one in left_out if not (root / one).is_relative_to(path)]
        package = cls(root, tuple(sorted(files)), tuple(sorted(left_out)))
        package._check_size()
        return package

    @property
    def size(self) -> int:
        """The total size of the files in bytes."""
        return sum((self.root / path).stat().st_size for path in self.files)

    def write(self, target: Path) -> None:
        """Write the files into a new zip archive at ``target``.

        A file that is there is replaced. The archive has the same bytes whenever the files have the same names, content
        and permissions; the times of the files are not kept.
        """
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in self.files:
                # always the same time, so that the bytes are the same
                entry = zipfile.ZipInfo(path.as_posix(), _ZIP_TIME)
                # Zip archives keep the mode of a file in the upper 16 bits.
                entry.external_attr = ((self.root / path).stat().st_mode & 0o777) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, (self.root / path).read_bytes())

    def _check_size(self) -> None:
        """Raise `InputError` naming the five largest files if all files together have more than 100 MiB.

        A cluster accepts no larger package; the files are counted as they are, before they are compressed.
        """
        if self.size <= MOST_BYTES:
            return
        sizes = []
        for path in self.files:
            sizes.append(((self.root / path).stat().st_size, path.as_posix()))
        sizes.sort(reverse=True)
        largest = ", ".join(
            f"{name} ({size / 2**20:.0f} MiB)" for size, name in sizes[:_LARGEST_NAMED]
        )
        what = (
            f"has {self.size / 2**20:.0f} MiB of files, a cluster accepts at most {MOST_BYTES >> 20} MiB; "
            f"the largest: {largest}"
        )
        raise InputError.one(str(self.root), what, "list files that are not needed in .gitignore")


def _walk_files(
    root: Path,
    folder: Path,
    rules: list[tuple[Path, GitIgnoreSpec]],
    outer_folders: tuple[Path, ...] = (),
) -> Iterator[tuple[Path, bool]]:
    """Yield (path, True) for each file to send, and (path, False) for each file or folder to leave out.

    ``folder`` is ``root`` or a folder below it, ``rules`` are the ignore rules of the folders around it, and
    ``outer_folders`` are those folders from ``root`` on, with links resolved. Left out are what ignore rules name,
    secrets, caches, environments, results, and links that lead out of ``root`` or form a cycle. Of a folder that is
    left out, the content is not yielded. Broken links below ``root`` and what is no file, such as a socket, are passed
    over unless a rule names them.
    """
    rules = [*rules, *_read_ignore_rules(folder)]
    outer_folders = (*outer_folders, folder.resolve())
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path = Path(entry.path)
        is_folder = entry.is_dir()
        if _is_ignored(path, is_folder, rules) or (is_folder and _is_environment_or_results(path)):
            yield path, False
            continue
        target = path.resolve()  # another path only for links, and for what is in linked folders
        leads_out = not target.is_relative_to(root)
        forms_cycle = is_folder and target in outer_folders
        if leads_out or forms_cycle:
            yield path, False
        elif is_folder:
            yield from _walk_files(root, path, rules, outer_folders)
        elif entry.is_file():
            yield path, True


def _read_ignore_rules_above(root: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """Return the folders above ``root`` that have ignore rules, with the rules, outermost first.

    Only those in the same Git repository count; [] if ``root`` is in no repository, or is the root of one.
    """
    if (root / ".git").exists():
        return []
    outermost_first: list[Path] = []
    # Upwards to the root of the repository, which must be found for any of these rules to count.
    for folder in root.parents:
        outermost_first.insert(0, folder)
        if (folder / ".git").exists():
            return [rule for one in outermost_first for rule in _read_ignore_rules(one)]
    return []  # not in a repository


def _read_ignore_rules(folder: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """Return a folder and the ignore rules in its ``.gitignore`` as a list of one pair; [] if there is no such file."""
    file = folder / ".gitignore"
    if not file.is_file():
        return []
    from pathspec import GitIgnoreSpec

    return [(folder, GitIgnoreSpec.from_lines(file.read_text(errors="replace").splitlines()))]


@functools.cache
def _make_rule_of_unsent_files() -> GitIgnoreSpec:
    """Return the ignore rules for files that are sent only if ``--include`` names them, such as secrets and caches.

    They are the patterns in `_NEVER`, made once and then kept.
    """
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(_NEVER)


def _is_ignored(path: Path, is_folder: bool, rules: Sequence[tuple[Path, GitIgnoreSpec]]) -> bool:
    """Return whether a path is left out, by ignore rules or because its name is that of a secret or a cache.

    ``rules`` are pairs of a folder and its rules, outermost first. Of the folders with a rule that matches, the
    innermost decides, where a rule with "!" keeps the path. Secrets and caches are left out in any case.
    """
    # by which rules for folders alone, such as build/, know a folder
    end = "/" if is_folder else ""
    if _make_rule_of_unsent_files().match_file(path.name + end):
        return True
    for folder, spec in reversed(rules):
        # True: ignored; False: named with "!", so that rules of outer folders do not count; None: no rule matches.
        is_left_out = spec.check_file(path.relative_to(folder).as_posix() + end).include
        if is_left_out is not None:
            return is_left_out
    return False


def _is_environment_or_results(folder: Path) -> bool:
    """Return whether a folder is a virtual environment, a sweep's results, or is named "results".

    The first has a pyvenv.cfg, the second a sweep.json and a spec.yaml.
    """
    if (folder / "pyvenv.cfg").exists():
        return True
    if (folder / "sweep.json").exists() and (folder / "spec.yaml").exists():
        return True
    return folder.name == "results"


OPTIONS = "options"  # key in a job's metadata, see `JobOptions`
FAILED = 1
CODES = {"SUCCEEDED": 0, "FAILED": FAILED, "STOPPED": interruption.CODE}

DRIVER = (
    "trap : TERM; n=0; while :; do {command}; code=$?; "
    "[ $n -lt {retries} ] || exit $code; case $code in 134|135|137|139) n=$((n+1));; *) exit $code;; esac; done"
)
"""Shell code that runs the driver and restarts it if it was killed; the driver then resumes from its log.

On TERM the shell waits for the driver's end, and otherwise it exits with the driver's exit code.
"""

address = click.option(
    "--address",
    envvar="RAY_API_SERVER_ADDRESS",
    show_envvar=True,
    required=True,
    metavar="http://HEAD:8265",
    help="The dashboard of the cluster.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """The options of `submit` about what is sent and what happens afterwards."""

    include: tuple[str, ...] = ()
    requirements: Path | None = None
    retries: int = 0
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of `submit` that are kept with a job, so that they also hold when the sweep is resumed."""

    include: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()  # packages that all nodes install
    retries: int = 0
    max_concurrent: int | None = None

    def encode(self) -> str:
        """Return the options as text for the metadata of a job, which `decode` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def decode(cls, text: str | None) -> JobOptions:
        """Return the options that `encode` has written as ``text``; those that are not in it have their defaults.

        ``text`` is None or "" for a job that was submitted by a release without `JobOptions`: all options have their
        defaults then. Unknown keys of the text are ignored.
        """
        found = json.loads(text or "{}")
        return cls(
            include=tuple(found.get("include", ())),
            requirements=tuple(found.get("requirements", ())),
            retries=found.get("retries", 0),
            max_concurrent=found.get("max_concurrent"),
        )


def _with_sending_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: declare the options in `Sending`, and pass them as ``sending``, an object of that class."""

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        """Call the command with those of the arguments ``given`` that are options of `Sending` collected in one."""
        sending_options = {}
        for field in dataclasses.fields(Sending):
            sending_options[field.name] = given.pop(field.name)
        command(**given, sending=Sending(**sending_options))

    for option in (
        click.option(
            "--wait", is_flag=True, help="Follow it to its end; Ctrl-C leaves it running."
        ),
        click.option(
            "--retries",
            type=click.IntRange(min=0),
            default=0,
            metavar="N",
            help="Restart the driver up to N times if it is killed.",
        ),
        click.option(
            "--requirements",
            type=click.Path(path_type=Path, dir_okay=False),
            help="A file of packages that all nodes install.",
        ),
        options.include,
    ):
        with_options = option(with_options)
    return with_options


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A sweep file that was checked on this machine, to be run on another one."""

    spec: Spec
    file: Path
    changes: Sequence[str]
    root: Path  # the project: the current folder, or the file's folder if the file is outside it
    module: Path | None = None  # the file of the trainable's module

    def command(self, results: str) -> list[str]:
        """Return the arguments of ``python -m sweep`` by which the other machine runs or resumes the sweep.

        They are ``run FILE --or-resume --results RESULTS`` and a ``--set`` for each change, with the file relative to
        `root`, which must be the current folder there. ``results`` is the folder or URL to which it writes.
        """
        file = self.file.resolve().relative_to(self.root).as_posix()
        return ["run", file, "--or-resume", "--results", results, *_format_options(self.changes)]

    def collect(self, include: Sequence[str] = ()) -> CodePackage:
        """Return the files that are sent, as `CodePackage.collect` does for `root` with ``include``.

        Raises `InputError` as that does, and if the sweep file or the trainable's module would be left out. A module
        outside `root`, such as an installed one, is not sent and not checked.
        """
        package = CodePackage.collect(self.root, include)
        for path in (self.file, self.module):
            if path is None:
                continue
            file = path.resolve()
            if not file.is_relative_to(package.root):
                continue
            needed = file.relative_to(package.root)
            if needed not in package.files:
                hint = f"send it with --include {needed.as_posix()}, or change .gitignore"
                what = "would not be sent, and the sweep needs it"
                raise InputError.one(needed.as_posix(), what, hint)
        return package


def _format_options(changes: Sequence[str], max_concurrent: int | None = None) -> list[str]:
    """Return the words of the command line for ``changes`` and ``max_concurrent``.

    They are ``--set`` with each change, and ``--max-concurrent`` unless it is None.
    """
    if max_concurrent:
        at_once = ["--max-concurrent", str(max_concurrent)]
    else:
        at_once = []
    return [part for one in changes for part in ("--set", one)] + at_once


def check_file(file: Path, changes: Sequence[str]) -> CheckedFile:
    """Check a sweep file and its trainable, print notes to standard error, and return what another machine needs.

    ``changes`` are assignments as for ``--set``. The project, `CheckedFile.root`, is the current folder or, if the file
    is not below that, the file's folder. Raises `InputError` for mistakes in the file, the changes or the trainable;
    whether modules are installed here is not checked.
    """
    from sweep.runner import checking, sweep_files

    spec, _ = sweep_files.load_file(file, changes)
    source = checking.check_trainable(spec, str(file), sweep_files.import_folders(file), here=False)
    for note in checking.list_notes(spec, source):
        click.echo(note, err=True)
    here = Path.cwd().resolve()
    path = file.resolve()
    root = here if path.is_relative_to(here) else path.parent
    # of ``module:Name``; None if the source is not in a file of its own
    module = source.files.get(spec.trainable.partition(":")[0])
    return CheckedFile(spec, file, changes, root, module)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@address
@click.option(
    "--results",
    required=True,
    metavar="PATH",
    help="A folder that all nodes share, by its whole path, or a place in an object store such as s3://bucket/prefix.",
)
@options.name
@options.assignments
@options.run_cap
@options.max_concurrent
@_with_sending_options
@options.as_json
@options.changes
def submit(
    file: Path,
    address: str,
    results: str,
    changes: Sequence[str],
    max_concurrent: int | None,
    sending: Sending,
    as_json: bool,
) -> None:
    """Send a sweep and its code to a Ray cluster, which runs it as a job; this command ends at once.

    With --wait, it follows the job to its end; the exit code is 1 if the job has failed, and 130 if it was stopped.
    """
    from sweep.backends.ray_tune.jobs import Jobs
    from sweep.render.plans import price_line
    from sweep.runner import earlier_times, planning, sweep_files
    from sweep.store.features import find_local_folder

    checked = check_file(file, changes)
    spec = checked.spec
    folders = sweep_files.import_folders(file)
    place = _check_results_place(results)  # a path or a URL

    # called by the plan below with a sample of the sweep's configurations
    def timing(sample: Sequence[Params]) -> earlier_times.Timing | None:
        """Return the times of the latest earlier sweep of this trainable in the results folder.

        Only epochs count whose ``steps_per_epoch`` is that of a configuration in ``sample``. Returns None if there are
        none, or if this machine cannot see the folder.
        """
        there = find_local_folder(place)
        if not there.is_dir():
            return None
        return earlier_times.find_earlier_times(there, spec.trainable, None, sample)

    command = [*checked.command(place), *_format_options((), max_concurrent)]
    if not as_json:
        basis = planning.Basis(folders=folders, timing=timing)
        click.echo(f"sweep    {spec.name}")
        click.echo("plan     " + price_line(planning.make_plan(spec, None, basis)))
    # the command is ``run FILE ...``
    about = {
        "sweep": spec.name,
        "results": place,
        "file": command[1],
    }
    package = checked.collect(sending.include)
    job_options = JobOptions(
        include=sending.include,
        requirements=_read_requirements(sending.requirements),
        retries=sending.retries,
        max_concurrent=max_concurrent,
    )
    _submit_job(
        Jobs(address), command, package, about, job_options, waits=sending.wait, as_json=as_json
    )


@click.command()
@click.argument("sweep")
@click.option(
    "--trial",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of trial N, on any machine with the results.",
)
@options.results
@click.option(
    "--address",
    envvar="RAY_API_SERVER_ADDRESS",
    show_envvar=True,
    metavar="http://HEAD:8265",
    help="The dashboard of the cluster that the sweep was submitted to.",
)
@click.option("--follow", is_flag=True, help="Wait for more, to its end; Ctrl-C leaves it running.")
@options.as_json
def logs(
    sweep: str, trial: int | None, results: Path, address: str | None, follow: bool, as_json: bool
) -> None:
    """Show what a trial has printed, or with --address what the driver of a submitted sweep has said.

    With --follow, show what follows as well: of a trial until it or the sweep ends, of a driver until its job ends.
    After following a driver, the exit code is 1 if its job has failed, and 130 if it was stopped.
    """
    if follow and as_json:
        raise InputError.one(
            "--follow", "is given with --json", "run it with --json repeatedly instead"
        )
    if trial is not None:
        _print_trial_output(sweep, trial, results, address, follow=follow, as_json=as_json)
        return
    if address is None:
        hint = "--trial N shows what a trial has printed, --address URL what the driver of a submitted sweep has said"
        raise InputError.one("logs", "neither a trial nor a cluster is given", hint)
    jobs, job = _find_job(sweep, address)
    if follow:
        _follow(jobs, job.id)
        return
    text = printable(jobs.logs(job.id))
    if not as_json:
        click.echo(text, nl=False)
        return
    from sweep.documents.shapes import LogsDocument
    from sweep.render import document

    click.echo(
        document(LogsDocument(sweep=job.address, job=job.id, state=job.state.lower(), text=text))
    )


def _print_trial_output(
    sweep: str, trial: int, results: Path, address: str | None, *, follow: bool, as_json: bool
) -> None:
    """Print what a trial has printed, from the log of its sweep; with ``follow``, until the trial or the sweep ends.

    With ``address``, ``sweep`` is one that was submitted to this cluster. ``as_json`` has no effect with ``follow``.
    Ctrl-C while following ends this process with the code of an interruption. Raises `UnknownNameError` if there is no
    such sweep or trial.
    """
    from sweep.cli import trial_output
    from sweep.store.folder import ResultsFolder

    if address is not None:
        results, sweep = find_results(sweep, address, prints_job=False)
    folder = ResultsFolder.open(results, sweep)
    if not follow:
        trial_output.print_output(folder, trial, as_json=as_json)
        return
    try:
        trial_output.follow_output(folder, trial)
    except KeyboardInterrupt:
        sys.exit(interruption.CODE)


def resume_submitted_sweep(
    sweep: str,
    address: str,
    changes: Sequence[str],
    *,
    retry_failed: bool,
    max_concurrent: int | None,
    as_json: bool,
) -> None:
    """Submit a job that resumes a submitted sweep on its cluster, with the code in the current folder.

    ``address`` is that of the cluster's dashboard, and ``changes`` are assignments as for ``--set``. Prints what was
    sent, and the job, and does not wait for its end. Raises `InputError` if no such sweep was submitted, its job is
    still running, the files cannot be sent, or the cluster does not answer.

    The options of the sweep's latest job also hold for the new one; ``max_concurrent``, if it is not None, replaces
    that of the latest job.
    """
    jobs, job = _find_job(sweep, address)
    job_options = JobOptions.decode(jobs.get_metadata(job.id).get(OPTIONS))
    if max_concurrent is not None:
        job_options = dataclasses.replace(job_options, max_concurrent=max_concurrent)
    command = [
        "resume",
        job.sweep,
        "--here",
        "--results",
        job.results,
        *_format_options(changes, job_options.max_concurrent),
    ]
    if retry_failed:
        command.append("--retry-failed")
    # ``user`` is who submitted the sweep, not who resumes it, so that the sweep keeps its name ``user/sweep``.
    about = {"user": job.user, "sweep": job.sweep, "results": job.results, "file": job.file}
    root = Path.cwd()
    for name in job_options.include:
        if not (root / name).exists():
            hint = "type the command in the project's folder, or submit the sweep file again"
            raise InputError.one(name, f"was sent with --include, and is not in {root}", hint)
    package = CodePackage.collect(root, job_options.include)
    _submit_job(jobs, command, package, about, job_options, waits=False, as_json=as_json)


def stop_submitted_sweep(sweep: str, address: str) -> str:
    """Stop a submitted sweep so that it can be resumed; wait until it has ended, and return a line about it.

    Raises `RefusedError` if its job is not running, and `InputError` if no such sweep was submitted or the cluster does
    not answer.
    """
    jobs, job = _find_job(sweep, address)
    if job.is_over:
        raise RefusedError.one(
            sweep, f"job {job.id} is not running ({job.state.lower()})", "there is nothing to stop"
        )
    ended = jobs.stop(job.id)
    again = shlex.join(["python", "-m", "sweep", "resume", sweep, "--address", address])
    return f"{sweep} is {ended.state.lower()}; go on with: {again}"


def find_results(sweep: str, address: str, *, prints_job: bool) -> tuple[Path, str]:
    """Return the folder with the results of a submitted sweep and of others, and the sweep's name in that folder.

    If the results are in an object store, the folder is their local copy. Also prints the state of the sweep's latest
    job if ``prints_job``. Raises `InputError` if no such sweep was submitted to the cluster at ``address``, if the
    cluster does not answer, or if this machine does not see the folder.
    """
    from sweep.store.features import find_local_folder

    _, job = _find_job(sweep, address)
    if prints_job:
        if job.state == "FAILED":
            reason = first_line(job.message)
        else:
            reason = ""
        state = job.state.lower()
        if reason:
            state = f"{state}: {reason}"
        click.echo(f"job      {job.id}, {state}")
    found = find_local_folder(job.results)
    if not found.is_dir():
        logs = shlex.join(["python", "-m", "sweep", "logs", sweep, "--address", address])
        hint = f"see {logs}"
        raise InputError.one(
            sweep, f"its results are in {job.results}, which this machine does not see", hint
        )
    return found, job.sweep


def print_submitted_sweeps(address: str, *, as_json: bool) -> None:
    """Print the sweeps that any user has submitted to a cluster, each with its latest job, as a table or as JSON.

    Without any, print a line that says so, or an empty JSON list. Raises `InputError` if the cluster does not answer.
    """
    from sweep.backends.ray_tune.jobs import Jobs
    from sweep.render import console, document
    from sweep.render.tables import jobs_grid, print_table

    # Of the jobs of one sweep, the last one in the list is kept, which is the latest.
    found = [*{job.address: job for job in Jobs(address).sweeps()}.values()]
    if as_json:
        click.echo(document(found))
    elif found:
        print_table(
            jobs_grid(
                (job.address, job.state.lower(), job.id, job.started, job.results) for job in found
            ),
            console(),
        )
    else:
        click.echo(
            f"no sweep was submitted to {address}; submit one: python -m sweep submit FILE --address {address}"
        )


def _find_job(sweep: str, address: str) -> tuple[Jobs, SweepJob]:
    """Return the client for the jobs of a cluster, and the latest job of a sweep.

    ``sweep`` is the name of a sweep of this user, or ``user/sweep``. Raises `UnknownNameError` if the sweep has no job,
    and `InputError` if the cluster does not answer.
    """
    from sweep.backends.ray_tune.jobs import Jobs

    jobs = Jobs(address)
    return jobs, jobs.find(sweep)


def _submit_job(
    jobs: Jobs,
    command: Sequence[str],
    package: CodePackage,
    about: dict[str, str],
    job_options: JobOptions,
    *,
    waits: bool,
    as_json: bool,
) -> None:
    """Pack the files of ``package``, submit a job that runs ``command`` to the cluster, and print what was submitted.

    ``command`` has the arguments of ``python -m sweep``; ``about`` is kept with the job, and its ``sweep`` and
    ``results`` are printed. The command is started again up to ``job_options.retries`` times if it is killed. With
    ``waits``, follow the job to its end, printing its output unless ``as_json``, and end this process with the exit
    code of its state. Raises `RefusedError` if the sweep's latest job is not over, or if its name is taken, and
    `InputError` if the cluster does not answer.
    """
    if not as_json:
        click.echo(
            f"sends    {len(package.files)} files, {package.size / 2**20:.1f} MiB, of {package.root}"
        )
        if package.left_out:
            click.echo(f"not sent {printable(', '.join(package.left_out))}")
    # shell code that runs the command, and starts it again if it is killed
    entrypoint = DRIVER.format(
        command=shlex.join(["python", "-m", "sweep", *command]), retries=job_options.retries
    )
    with TemporaryDirectory() as folder:
        archive = Path(folder) / "package.zip"
        package.write(archive)
        job = jobs.submit(
            entrypoint,
            archive,
            {**about, OPTIONS: job_options.encode()},
            job_options.requirements,
            {"PYTHONUNBUFFERED": "1"},
        )
    results = f"{about['results']}/{about['sweep']}"
    if as_json:
        if waits:
            state = _wait_for_end(jobs, job)
        else:
            state = None
        _print_submitted(package, about["sweep"], job, results, state)
        if state is not None:
            sys.exit(CODES[state])  # the exit code of a job in this state
        return
    click.echo(f"job      {job}, results in {results}")
    if waits:
        _follow(jobs, job)


def _print_submitted(
    package: CodePackage, sweep: str, job: str, results: str, state: str | None
) -> None:
    """Print the document of a submitted sweep as JSON.

    ``job`` is the id of its job, and ``state`` the final state of that, or None if the job was not waited for.
    """
    from sweep.documents.shapes import SubmittedDocument
    from sweep.render import document

    click.echo(
        document(
            SubmittedDocument(
                sweep=sweep,
                job=job,
                results=results,
                files=len(package.files),
                size_bytes=package.size,
                left_out=package.left_out,
                state=None if state is None else state.lower(),
            )
        )
    )


def _wait_for_end(jobs: Jobs, job: str) -> str:
    """Wait until a job has ended and return its state: "SUCCEEDED", "FAILED" or "STOPPED".

    There is no time limit. Raises InterruptedByUser at Ctrl-C, which leaves the job running, and `InputError` if the
    cluster does not answer any more.
    """
    try:
        return jobs.wait(job).state
    except KeyboardInterrupt:
        raise InterruptedByUser(f"{job} goes on") from None


def _follow(jobs: Jobs, job: str) -> None:
    """Print a job's output until it ends, then end this process with the exit code of its final state.

    ``job`` is its id. The code is 0 if it has succeeded, 1 if it has failed, and that of an interruption if it was
    stopped. Ctrl-C leaves the job running, and ends this process with the code of an interruption. Raises `InputError`
    if the cluster does not answer any more.
    """
    try:
        for text in jobs.follow(job):
            click.echo(printable(text), nl=False)
        ended = jobs.wait(job)
    except KeyboardInterrupt:
        click.echo(f"\n{job} goes on", err=True)
        sys.exit(interruption.CODE)
    sys.exit(CODES[ended.state])


def _check_results_place(results: str) -> str:
    """Return ``results`` if it is an absolute path, or its normal form if it is a URL.

    Raises `InputError` for a relative path or an invalid URL.
    """
    from sweep.store.features import is_url
    from sweep.store.object_store import check_url

    if is_url(results):
        return check_url("--results", results)
    if not Path(results).is_absolute():
        hint = "give a folder that all nodes share, or a place in an object store such as s3://bucket/prefix"
        raise InputError.one(
            "--results", f"{results!r} is no whole path: a job has a folder of its own", hint
        )
    return results


def _read_requirements(requirements: Path | None) -> tuple[str, ...]:
    """Return the lines of a requirements file without comment lines and empty lines; () if no file is given.

    Spaces around a line are removed, and comments at its end stay. Raises `InputError` if the file cannot be read, or
    is not text in UTF-8.
    """
    if requirements is None:
        return ()
    try:
        text = requirements.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError.one(str(requirements), f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError.one(str(requirements), "is not text in UTF-8") from error
    lines = [line.strip() for line in text.splitlines()]
    return tuple(line for line in lines if line and not line.startswith("#"))
