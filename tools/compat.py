"""What of the project breaks under the newest releases that pip offers beyond the pins: `make compat`.

    python tools/compat.py requirements      the dependencies without upper bounds, for `pip install -r`
    python tools/compat.py run [PYTEST...]   the fast tests in this interpreter, and what broke

`run` prints which installed releases differ from constraints.txt, then runs the tests that are neither slow nor
exhaustive. Failed tests run again where the pins are installed (.venv); those that fail there as well are not due to a
release. Exits with 0 if nothing broke, 1 if something did, 2 if the tests could not be run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAST = "not slow and not exhaustive"
UPPER = re.compile(r",?\s*(<=?|==|~=|!=)[^,;]*")
MOST_SHOWN = 5  # maximum number of failed tests of one file that are printed


@dataclass(frozen=True)
class Failure:
    """A test that failed: its file, its name, the line that says why, and all that was printed."""

    file: str
    test: str
    reason: str
    text: str


def requirements(project: Path) -> list[str]:
    """Return what the package and its tests need, with lower bounds only.

    Without a lower bound, pip would take an old TensorFlow to get the newest releases of everything else.
    """
    table = tomllib.loads(project.read_text())["project"]
    lines = [
        line.partition(";")
        for line in (*table["dependencies"], *table["optional-dependencies"]["test"])
    ]
    return [UPPER.sub("", needed) + semicolon + where for needed, semicolon, where in lines]


def pins(constraints: Path) -> dict[str, str]:
    """Return the pinned releases by name."""
    lines = (line.partition("#")[0].strip() for line in constraints.read_text().splitlines())
    return {
        _normal(name): version
        for name, _, version in (line.partition("==") for line in lines if "==" in line)
    }


def installed() -> dict[str, str]:
    """Return the releases in this interpreter by name, without this package and those of every environment."""
    found = {_normal(found.metadata["Name"]): found.version for found in metadata.distributions()}
    return {
        name: version
        for name, version in found.items()
        if name not in ("sweep-keras", "pip", "setuptools", "wheel")
    }


def changes(pinned: Mapping[str, str], present: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return by name the releases that are newer than their pins, older (held back by others), or not pinned."""
    from packaging.version import Version

    found: dict[str, dict[str, str]] = {"newer": {}, "older": {}, "not pinned": {}}
    for name, version in sorted(present.items()):
        if name not in pinned:
            found["not pinned"][name] = version
        elif pinned[name] != version:
            kind = "newer" if Version(version) > Version(pinned[name]) else "older"
            found[kind][name] = f"{pinned[name]} -> {version}"
    return found


def failures(report: Path) -> tuple[int, list[Failure]]:
    """Return how many tests ran, and those that failed, from pytest's report (JUnit's XML)."""
    cases = [case for case in ET.parse(report).iter("testcase") if case.find("skipped") is None]
    found = []
    for case in cases:
        for bad in (*case.iterfind("failure"), *case.iterfind("error")):
            text, name = bad.text or "", case.get("name", "")
            # the latter cannot be imported
            place = case.get("file") or name.replace(".", "/") + ".py"
            reason = (bad.get("message") or text).strip().splitlines()
            found.append(Failure(place, name, reason[0] if reason else "no reason", text))
    return len(cases), found


def suspects(failed: Iterable[Failure], new: Iterable[str]) -> list[str]:
    """Return the packages whose folders occur in the output of failed tests."""
    text = "\n".join(failure.text for failure in failed)
    return [
        name
        for name in new
        if any(
            re.search(rf"site-packages/{re.escape(module)}\b", text) for module in _modules(name)
        )
    ]


def run(python: Path | str, tests: Iterable[str], report: Path) -> int:
    """Run tests in an interpreter, with pytest's report in a file; return the exit status."""
    options = [
        "-m",
        FAST,
        "-q",
        "--tb=short",
        "-n2",
        "--dist=loadfile",
        "--continue-on-collection-errors",
    ]
    options += [f"--junitxml={report}", "-o", "junit_family=xunit1"]  # the older family names files
    given = {**os.environ, "PYTHONPATH": str(ROOT)}  # an editable install may be another checkout's
    return subprocess.run(
        [str(python), "-m", "pytest", *options, *tests], cwd=ROOT, env=given, check=False
    ).returncode


def told(failed: list[Failure], new: list[str]) -> Iterator[str]:
    """Yield lines that say what broke, by test file."""
    by_file: dict[str, list[Failure]] = {}
    for failure in failed:
        by_file.setdefault(failure.file, []).append(failure)
    for file, those in sorted(by_file.items()):
        named = suspects(those, new)
        yield f"{file}: {len(those)} failed" + (
            f"; new and in their tracebacks: {', '.join(named)}" if named else ""
        )
        yield from (f"    {failure.test}: {failure.reason[:160]}" for failure in those[:MOST_SHOWN])
        if len(those) > MOST_SHOWN:
            yield f"    and {len(those) - MOST_SHOWN} more"


def compare(arguments: list[str], pinned: Path) -> int:
    """Run the tests here, the failed ones also with the pins, and print the difference; return the exit status."""
    changed = changes(pins(ROOT / "constraints.txt"), installed())
    for word, those in changed.items():
        what = "not pinned" if word == "not pinned" else f"{word} than their pins"
        print(f"{len(those)} packages are {what}" + (":" if those else ""))
        for name, text in those.items():
            print(f"    {name} {text}")
    sys.stdout.flush()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        status = run(sys.executable, arguments, report)
        if status not in (0, 1) or not report.exists():
            print(f"the tests could not be run: pytest ended with {status}")
            return 2
        count, failed = failures(report)
        before: set[tuple[str, str]] = set()
        if failed and pinned.exists():
            again = Path(folder) / "pinned.xml"
            run(pinned, sorted({failure.file for failure in failed}), again)
            before = {
                (failure.file, failure.test)
                for failure in (failures(again)[1] if again.exists() else [])
            }
    broken = [failure for failure in failed if (failure.file, failure.test) not in before]
    print(
        f"\n{count} tests ran, {len(failed)} failed, {len(broken)} of them only with these releases"
    )
    for line in told(broken, [*changed["newer"], *changed["not pinned"]]):
        print(line)
    if failed and not pinned.exists():
        print(
            "there is no .venv with the pins to try them in: `make test` says whether they fail there as well"
        )
    return 1 if broken else 0


def _modules(name: str) -> Iterable[str]:
    """Return the top-level folders and modules that a package has installed; none if it is not installed."""
    try:
        files = metadata.distribution(name).files or []
    except metadata.PackageNotFoundError:
        return []
    return {
        file.parts[0].removesuffix(".py")
        for file in files
        if file.suffix == ".py" and ".." not in file.parts
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0], allow_abbrev=False)
    parser.add_argument("what", choices=["requirements", "run"])
    parser.add_argument(
        "--pinned",
        type=Path,
        default=ROOT / ".venv/bin/python",
        help="an interpreter with the pins",
    )
    given, rest = parser.parse_known_args()
    if given.what == "requirements":
        print("\n".join(requirements(ROOT / "pyproject.toml")))
        return 0
    return compare(rest, given.pinned)


if __name__ == "__main__":
    sys.exit(main())
