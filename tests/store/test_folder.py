import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from sweep.errors import InputError, StoreError
from sweep.events import SessionStarted, TrialStarted
from sweep.store.folder import ResultsFolder, folders, free_name
from sweep.store.log import Log
from sweep.store.object_store import ObjectStore
from sweep.store.sweep_info import SweepInfo

INFO = {"objectives": [{"name": "val_accuracy", "goal": "maximize"}], "seed": 0}


def create(results: Path, name: str = "first") -> ResultsFolder:
    return ResultsFolder.create(results, name, "method: grid\r\n", INFO)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_folder_holds_the_file_as_given_and_what_was_resolved(tmp_path):
    folder = create(tmp_path / "new" / "results")
    assert folder.path == tmp_path / "new" / "results" / "first"
    assert folder.spec.read_bytes() == b"method: grid\r\n"
    assert folder.read_info().content == {"name": "first", **INFO}
    assert folder.read_info().objectives == (("val_accuracy", "maximize"),)
    assert folder.checkpoints.is_dir()
    assert [path.name for path in (tmp_path / "new" / "results").iterdir()] == ["first"]


def test_a_name_that_is_taken_in_the_store_is_not_free(tmp_path, monkeypatch):
    store = ObjectStore("memory://bucket", MemoryStore())
    store.put("here/sweep.json", b"{}")  # of another machine's
    monkeypatch.setattr(
        "sweep.store.folder.store_of", lambda path: store if path == tmp_path else None
    )
    (tmp_path / "there").mkdir()
    assert [free_name(tmp_path, name) for name in ("here", "there", "free")] == [
        "here-2",
        "there-2",
        "free",
    ]


def test_an_empty_folder_can_be_taken(tmp_path):
    (tmp_path / "first").mkdir()
    assert create(tmp_path).read_info().name == "first"


def test_a_taken_name_is_refused_with_the_ways_out(tmp_path):
    folder = create(tmp_path)
    with Log(folder.log) as log:
        log.append([SessionStarted(time=0.0, resumed=False, version="1")])
        log.append(
            [
                TrialStarted(
                    trial=trial, trial_id=str(trial), params={}, seed=0, repeat=0, time=0.0
                )
                for trial in range(3)
            ]
        )
    os.utime(folder.log, (1_700_000_000, 1_700_000_000))
    before = snapshot(tmp_path)
    with pytest.raises(InputError) as caught:
        create(tmp_path)
    assert str(caught.value) == (
        f"{folder.path}: holds a sweep already (3 trials, last run 2023-11-14 22:13 UTC); "
        "choose another name with --name OTHER, or go on with it: python -m sweep resume "
        f"{folder.path}"
    )
    assert snapshot(tmp_path) == before


def test_foreign_content_is_never_touched(tmp_path):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "thesis.tex").write_text("mine")
    (tmp_path / "second").write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match=r"first: exists and holds other files \(thesis.tex ...\)"):
        create(tmp_path)
    with pytest.raises(InputError, match="second: is a file, expected a new folder"):
        create(tmp_path, "second")
    with pytest.raises(
        InputError, match="second: is a file, expected a folder; give another folder"
    ):
        create(tmp_path / "second")
    with pytest.raises(InputError, match=r"second/deeper: cannot be written \(Not a directory\)"):
        create(tmp_path / "second" / "deeper")
    assert snapshot(tmp_path) == before


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_an_unwritable_place_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=r"cannot be written \(Permission denied\).*--results DIR"):
        create(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/tmp/x", "a\\b", "-x", ".x", "a\nb", "a\0", " a", "x" * 201],
)
def test_a_name_cannot_leave_the_results_folder(tmp_path, name):
    with pytest.raises(InputError, match=r"cannot name a results folder.*--name OTHER"):
        create(tmp_path / "results", name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_of_a_folder_that_could_not_be_made(tmp_path):
    with pytest.raises(TypeError, match="object"):
        ResultsFolder.create(tmp_path, "first", "", {"seed": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_opened_by_name_or_path(tmp_path):
    create(tmp_path / "a")
    for given in ("first", str(tmp_path / "a" / "first"), f"{tmp_path}/a/first/"):
        assert ResultsFolder.open(tmp_path / "a", given).spec.read_text() == "method: grid\n"


def test_what_is_no_sweep_is_refused_with_the_nearest_one(tmp_path):
    create(tmp_path, "lr_wd_aug")
    (tmp_path / "notes").mkdir()
    with pytest.raises(
        InputError, match=r"lr_wd_agu: no such sweep in .*; did you mean 'lr_wd_aug'\?"
    ):
        ResultsFolder.open(tmp_path, "lr_wd_agu")
    with pytest.raises(
        InputError, match=r"notes: holds no sweep \(no sweep.json in it\); known: lr_wd_aug"
    ):
        ResultsFolder.open(tmp_path, "notes")
    with pytest.raises(InputError, match="start one: python -m sweep run FILE"):
        ResultsFolder.open(tmp_path / "notes", "x")


def test_folders_lists_sweeps_and_what_was_meant_to_be_one(tmp_path):
    for name in ("b", "a"):
        create(tmp_path, name)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "log.jsonl").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / ".b.99").mkdir()
    (tmp_path / ".b.99" / "sweep.json").touch()
    assert [folder.name for folder in folders(tmp_path)] == ["a", "b", "broken"]
    assert folders(tmp_path / "absent") == []


def test_a_folder_that_one_may_not_look_into_is_left_out(tmp_path, monkeypatch):
    """As the private sweep of another user, or ``lost+found`` of a disk."""
    create(tmp_path, "mine")
    (tmp_path / "lost+found").mkdir()
    stat = Path.stat

    def refuse(path, **given):
        if path.parent.name == "lost+found":  # root may look into all
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **given)

    monkeypatch.setattr(Path, "stat", refuse)
    assert [folder.name for folder in folders(tmp_path)] == ["mine"]
    assert not ResultsFolder.exists(tmp_path, "lost+found")
    with pytest.raises(StoreError, match=r"lost\+found: may not be read by this user"):
        ResultsFolder.open(tmp_path, "lost+found")
    with pytest.raises(InputError, match="did you mean 'mine'"):
        ResultsFolder.open(tmp_path, "mien")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "damaged"),
        ("[]", "expected a mapping"),
        ('{"objectives": ["loss"]}', "expected a list of"),
        ('{"objectives": 3}', "expected a list of"),
        (
            '{"objectives": [{"name": "loss", "goal": "min"}]}',
            "goal 'min', expected maximize or minimize",
        ),
    ],
)
def test_a_damaged_sweep_json_is_told(tmp_path, text, message):
    folder = create(tmp_path)
    folder.info.write_text(text)
    with pytest.raises(StoreError, match=rf"sweep.json: .*{message}"):
        _ = folder.read_info().objectives


def test_info_is_replaced_whole(tmp_path):
    folder = create(tmp_path)
    with pytest.raises(TypeError, match="object"):
        folder.write_info(folder.read_info().changed(seed=object()))
    assert folder.read_info().content["seed"] == 0
    folder.write_info(SweepInfo(folder.info, {"seed": 1, "loss": float("inf")}))
    assert json.loads(folder.info.read_text()) == {"seed": 1, "loss": "inf"}
    assert {path.name for path in folder.path.iterdir()} == {
        "spec.yaml",
        "sweep.json",
        "checkpoints",
    }


def test_one_process_runs_a_sweep(tmp_path):
    folder = create(tmp_path)
    assert not folder.is_running()
    with folder.lock():
        assert folder.is_running()
        refused = pytest.raises(
            InputError, match=rf"run by process {os.getpid()} on \S+; stop that one first"
        )
        with refused, folder.lock():
            pass
        assert folder.is_running()
    assert not folder.is_running()
    with folder.lock():
        assert folder.is_running()


OWNER = """
import sys, time
from pathlib import Path
from sweep.store.folder import ResultsFolder
with ResultsFolder(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_the_lock_dies_with_its_owner(tmp_path):
    folder = create(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder.path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "locked\n"
        with pytest.raises(InputError, match=re.escape(f"process {owner.pid} on")), folder.lock():
            pass
        owner.kill()
        owner.wait()
    with folder.lock():
        assert folder.is_running()
