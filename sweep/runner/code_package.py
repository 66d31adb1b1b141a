"""The code that goes along with a submitted sweep: the files of a project, as one archive.

It is the same archive as long as the files are, so that a cluster which has it is not sent it again.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from sweep.errors import InputError

MOST_BYTES = 100 << 20
"""What Ray takes: a larger package is refused by a cluster with an error of its own."""

_SECRET = [".env", ".env.*", ".netrc", ".git-credentials", ".ssh/", ".aws/", ".azure/", ".kube/", ".gnupg/"]
_NEVER = GitIgnoreSpec.from_lines(
    [
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
)
_SHOWN = 5
_OLD = (1980, 1, 1, 0, 0, 0)  # the first moment that an archive can tell


@dataclass(frozen=True, slots=True)
class CodePackage:
    """What of a project is sent, and what is not."""

    root: Path
    files: tuple[Path, ...]  # relative to it
    left_out: tuple[str, ...]  # files and folders that a rule leaves out, relative to it

    @classmethod
    def of(cls, root: Path, include: Sequence[str] = ()) -> CodePackage:
        """Take all files of a project but those that ``.gitignore`` names, results, and environments.

        ``include`` are files and folders below it that are taken anyhow. Raises `InputError` for one that is not
        there, and for more than 100 MiB.
        """
        root = root.resolve()
        if root in (Path.home().resolve(), Path(root.anchor)):
            hint = "make a folder for the project, and type the command there"
            raise InputError.one(str(root), "is no project: all that is in it would be sent", hint)
        files, left_out = set[Path](), list[str]()
        for path, taken in _walk(root, root, _rules_above(root)):
            if taken:
                files.add(path.relative_to(root))
            else:
                left_out.append(path.relative_to(root).as_posix() + ("/" if path.is_dir() else ""))
        for name in include:
            path = (root / name).resolve()
            if not path.exists() or not path.is_relative_to(root):
                raise InputError.one(f"--include {name}", f"is not below {root}", "give a path below the project")
            found = path.rglob("*") if path.is_dir() else [path]
            files |= {one.relative_to(root) for one in found if one.is_file()}
        package = cls(root, tuple(sorted(files)), tuple(sorted(left_out)))
        package._check()
        return package

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum((self.root / path).stat().st_size for path in self.files)

    def write(self, target: Path) -> None:
        """Write the archive."""
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in self.files:
                about = zipfile.ZipInfo(path.as_posix(), _OLD)
                about.external_attr = ((self.root / path).stat().st_mode & 0o777) << 16
                about.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(about, (self.root / path).read_bytes())

    def _check(self) -> None:
        if self.size <= MOST_BYTES:
            return
        sizes = sorted(((self.root / path).stat().st_size, path.as_posix()) for path in self.files)[::-1]
        largest = ", ".join(f"{name} ({size / 2**20:.0f} MiB)" for size, name in sizes[:_SHOWN])
        what = (
            f"has {self.size / 2**20:.0f} MiB of files, a cluster takes {MOST_BYTES >> 20} MiB; the largest: {largest}"
        )
        raise InputError.one(str(self.root), what, "name what need not go along in .gitignore")


def _walk(root: Path, folder: Path, rules: list[tuple[Path, GitIgnoreSpec]]) -> Iterator[tuple[Path, bool]]:
    """Yield each file that is taken, and each file or folder that is not."""
    rules = [*rules, *_rules_of(folder)]
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        path, is_folder = Path(entry.path), entry.is_dir()
        if _is_ignored(path, is_folder, rules) or (is_folder and _is_of_no_use(path)):
            yield path, False
        elif not (there := path.resolve()).is_relative_to(root) or (is_folder and folder.is_relative_to(there)):
            yield path, False  # no way out of the project, nor round in circles
        elif is_folder:
            yield from _walk(root, path, rules)
        elif entry.is_file():
            yield path, True


def _rules_above(root: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """Return what the folders above say of this one, up to that of the repository."""
    above: list[Path] = []
    for folder in () if (root / ".git").exists() else root.parents:
        above.insert(0, folder)
        if (folder / ".git").exists():
            return [rule for one in above for rule in _rules_of(one)]
    return []  # in no repository


def _rules_of(folder: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    own = folder / ".gitignore"
    if not own.is_file():
        return []
    return [(folder, GitIgnoreSpec.from_lines(own.read_text(errors="replace").splitlines()))]


def _is_ignored(path: Path, is_folder: bool, rules: Sequence[tuple[Path, GitIgnoreSpec]]) -> bool:
    """Return whether rules leave a path out: of nested files, the innermost that says anything about it decides."""
    end = "/" if is_folder else ""
    if _NEVER.match_file(path.name + end):
        return True
    for folder, spec in reversed(rules):
        verdict = spec.check_file(path.relative_to(folder).as_posix() + end).include
        if verdict is not None:
            return verdict
    return False


def _is_of_no_use(folder: Path) -> bool:
    """Return whether it is an environment of Python, a sweep's results, or a folder of such."""
    if (folder / "pyvenv.cfg").exists() or ((folder / "sweep.json").exists() and (folder / "spec.yaml").exists()):
        return True
    return folder.name == "results"
