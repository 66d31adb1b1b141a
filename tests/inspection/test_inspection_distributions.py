"""Installed distributions: whose a file is, and what tells one version from another."""

from __future__ import annotations

import json
from pathlib import Path

from sweep.inspection.distributions import Distributions


def install(site: Path, name: str, files: tuple[str, ...], version: str = "1.0", **about: str) -> Path:
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text("")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("".join(f"{file},sha256={about.get('hashed', 'a')},1\n" for file in files))
    needs = "".join(f"Requires-Dist: {need}\n" for need in about.get("needs", "").split(",") if need)
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
        name: owner.name if (owner := found.owner(tmp_path, tmp_path / name)) else None
        for name in ("yaml/__init__.py", "shared/tools.py", "shared/other.py", "loose.py")
    }
    assert owners == {
        "yaml/__init__.py": "pyyaml",
        "shared/tools.py": "yaml-tools",
        "shared/other.py": "other",
        "loose.py": None,
    }


def test_where_no_list_is_kept_the_name_tells(tmp_path: Path) -> None:
    (tmp_path / "old_net-2.1.egg-info").mkdir()
    owner = Distributions([tmp_path]).owner(tmp_path, tmp_path / "old_net" / "__init__.py")
    assert owner is not None
    assert (owner.name, owner.identity) == ("old-net", "2.1")


def test_what_is_needed_counts_without_extras(tmp_path: Path) -> None:
    install(tmp_path, "first", ("first.py",), needs='second>=1,third; extra == "x",absent')
    install(tmp_path, "second", ("second.py",), needs="fourth")
    for name in ("third", "fourth", "not_meant"):
        install(tmp_path, name, (f"{name}.py",))
    found = Distributions([tmp_path])
    owner = found.owner(tmp_path, tmp_path / "first.py")
    assert owner is not None
    assert set(found.needed([owner])) == {"first", "second", "fourth"}


def test_one_from_a_folder_or_a_commit_is_known_by_its_files(tmp_path: Path) -> None:
    identities = []
    for hashed in ("a", "b"):
        site = tmp_path / hashed
        install(site, "net", ("net.py",), url=json.dumps({"url": "git+x", "vcs_info": {}}), hashed=hashed)
        owner = Distributions([site]).owner(site, site / "net.py")
        assert owner is not None
        identities.append(owner.identity)
        assert not owner.is_editable
    assert identities[0] != identities[1]


def test_an_editable_one_says_so(tmp_path: Path) -> None:
    install(tmp_path, "net", ("net.py",), url=json.dumps({"url": "file:///x", "dir_info": {"editable": True}}))
    owner = Distributions([tmp_path]).owner(tmp_path, tmp_path / "net.py")
    assert owner is not None
    assert owner.is_editable
