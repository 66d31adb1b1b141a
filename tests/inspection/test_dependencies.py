"""Where modules come from."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from sweep.inspection.dependencies import Distributions, Search, find_unnamed_imports, list_imports


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return path


def test_the_folders_come_first_then_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "c")
    for folder, names in (("a", ["one"]), ("b", ["one", "two"]), ("c", ["one", "two", "three"])):
        for name in names:
            write(tmp_path / folder / f"{name}.py")
    search = Search([tmp_path / "a", tmp_path / "b"])
    assert [search.find(name) for name in ("one", "two", "three", "four")] == [
        tmp_path / "a" / "one.py",
        tmp_path / "b" / "two.py",
        tmp_path / "c" / "three.py",
        None,
    ]


def test_packages_with_and_without_a_file_of_their_own(tmp_path: Path) -> None:
    deep = write(tmp_path / "a" / "whole" / "deep" / "net.py")
    start = write(tmp_path / "a" / "whole" / "__init__.py")
    parts = [write(tmp_path / folder / "spread" / f"{folder}.py") for folder in ("a", "b")]
    hidden = write(tmp_path / "a" / "later" / "x.py")
    whole = write(tmp_path / "b" / "later" / "__init__.py")
    search = Search([tmp_path / "a", tmp_path / "b"])
    assert (search.find("whole"), search.find("whole.deep"), search.find("whole.deep.net")) == (
        start,
        None,
        deep,
    )
    assert [search.find("spread.a"), search.find("spread.b")] == parts
    # a package with a file hides folders without, also earlier ones
    assert search.find("later") == whole
    assert hidden.is_file()
    assert search.find("later.x") is None


def test_the_standard_library_is_what_nothing_hides(tmp_path: Path) -> None:
    write(tmp_path / "json.py")
    search = Search([tmp_path])
    assert [search.is_standard(name) for name in ("random", "sys", "json", "numpy")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_package_that_an_editable_installation_knows() -> None:
    path = Search([]).find("sweep.inspection.dependencies")
    assert path is not None
    assert path.name == "dependencies.py"


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import a.b, c as d", {"a.b", "c"}),
        ("from a import b, c", {"a", "a.b", "a.c"}),
        ("from a import *", {"a"}),
        ("from . import b", {"top.mid", "top.mid.b"}),
        ("from ..x import b", {"top.x", "top.x.b"}),
        ("def f():\n    import late", {"late"}),
        ("import importlib\nimportlib.import_module('a.b')", {"importlib", "a.b"}),
        ("import_module('.b', __package__)", {"top.mid.b"}),
        ("import_module('..b', package=__package__)", {"top.b"}),
        ("import_module('.b', 'a')", {"a.b"}),
        ("import_module('.b', find())", set()),
        ("import_module('.', __package__)", {"top.mid"}),
        ("import_module('..', __package__)", {"top"}),
        ("import_module('...', __package__)", set()),
        ("import_module('..b', 'a')", set()),
        ("__import__('b', globals(), None, None, 1)", {"top.mid.b"}),
        ("__import__('b', globals(), level=2)", {"top.b"}),
        ("__import__('', globals(), level=1)", {"top.mid"}),
        ("__import__('b', globals(), level=find())", set()),
        ("__import__('b', globals())", {"b"}),
    ],
)
def test_named(line: str, named: set[str]) -> None:
    assert set(list_imports(ast.parse(line), "top.mid.module", is_package=False)) == named


def test_a_packages_own_file_is_relative_to_the_package() -> None:
    assert set(list_imports(ast.parse("from . import b"), "top.mid", is_package=True)) == {
        "top.mid",
        "top.mid.b",
    }
    for anchor in ("__package__", "__name__"):
        call = ast.parse(f"import_module('.b', {anchor})")
        assert [*list_imports(call, "top.mid", is_package=True)] == ["top.mid.b"]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("importlib.import_module(name)", 1),
        ("importlib.import_module('.b', find())", 1),
        ("importlib.import_module('.b', __package__)", 0),
        ("importlib.import_module('...b', __package__)", 0),
        ("__import__('b', globals(), None, None, 2)", 0),
        ("__import__('b', globals(), None, None, level)", 1),
        ("__import__(name)", 1),
        ("exec(text)", 1),
        ("spec = importlib.util.spec_from_file_location('a', path)", 1),
        ("sys.path.append(folder)", 1),
        ("importlib.import_module('json'); eval('1'); model.exec(1); os.path.join(a, b)", 0),
    ],
)
def test_not_named(line: str, count: int) -> None:
    assert len(list(find_unnamed_imports(ast.parse(line)))) == count


def install(
    site: Path, name: str, files: tuple[str, ...], version: str = "1.0", **about: str
) -> Path:
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text("")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(
        "".join(f"{file},sha256={about.get('hashed', 'a')},1\n" for file in files)
    )
    needs = "".join(
        f"Requires-Dist: {need}\n" for need in about.get("needs", "").split(",") if need
    )
    (info / "METADATA").write_text(f"Name: {name}\n{needs}\nRequires-Dist: not-meant\n")
    if "url" in about:
        (info / "direct_url.json").write_text(about["url"])
    return info


def test_a_file_is_of_the_distribution_that_lists_it_whatever_its_name(tmp_path: Path) -> None:
    install(tmp_path, "PyYAML", ("yaml/__init__.py",))
    install(tmp_path, "yaml_tools", ("yaml_tools.py", "shared/tools.py"))
    install(tmp_path, "other", ("shared/other.py",))
    (tmp_path / "loose.py").write_text("")
    found = Distributions([tmp_path])
    owners = {
        name: owner.name if (owner := found.find_owner(tmp_path, tmp_path / name)) else None
        for name in ("yaml/__init__.py", "shared/tools.py", "shared/other.py", "loose.py")
    }
    assert owners == {
        "yaml/__init__.py": "pyyaml",
        "shared/tools.py": "yaml-tools",
        "shared/other.py": "other",
        "loose.py": None,
    }


def test_a_namespace_package_may_lie_in_several_folders(tmp_path: Path) -> None:
    project, site = tmp_path / "project", tmp_path / "site"
    install(site, "theirs", ("shared/theirs.py",))
    project.mkdir()
    found = Distributions([project, site])
    owner = found.find_owner(project, site / "shared" / "theirs.py")
    assert owner is not None
    assert owner.name == "theirs"
    assert found.find_owner(project, tmp_path / "elsewhere.py") is None


def test_where_no_list_is_kept_the_name_tells(tmp_path: Path) -> None:
    (tmp_path / "old_net-2.1.egg-info").mkdir()
    owner = Distributions([tmp_path]).find_owner(tmp_path, tmp_path / "old_net" / "__init__.py")
    assert owner is not None
    assert (owner.name, owner.identity) == ("old-net", "2.1")


def test_what_is_needed_counts_without_extras(tmp_path: Path) -> None:
    install(tmp_path, "first", ("first.py",), needs='second>=1,third; extra == "x",absent')
    install(tmp_path, "second", ("second.py",), needs="fourth")
    for name in ("third", "fourth", "not_meant"):
        install(tmp_path, name, (f"{name}.py",))
    found = Distributions([tmp_path])
    owner = found.find_owner(tmp_path, tmp_path / "first.py")
    assert owner is not None
    assert set(found.list_required([owner])) == {"first", "second", "fourth"}


def test_one_from_a_folder_or_a_commit_is_known_by_its_files(tmp_path: Path) -> None:
    identities = []
    for hashed in ("a", "b"):
        site = tmp_path / hashed
        install(
            site,
            "net",
            ("net.py",),
            url=json.dumps({"url": "git+x", "vcs_info": {}}),
            hashed=hashed,
        )
        owner = Distributions([site]).find_owner(site, site / "net.py")
        assert owner is not None
        identities.append(owner.identity)
        assert not owner.is_editable
    assert identities[0] != identities[1]


def test_an_editable_one_says_so(tmp_path: Path) -> None:
    install(
        tmp_path,
        "net",
        ("net.py",),
        url=json.dumps({"url": "file:///x", "dir_info": {"editable": True}}),
    )
    owner = Distributions([tmp_path]).find_owner(tmp_path, tmp_path / "net.py")
    assert owner is not None
    assert owner.is_editable
