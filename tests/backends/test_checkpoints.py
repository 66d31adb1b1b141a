"""Checkpoints are written beside the training, one at a time, and whole or not at all."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from counting import Counting

from sweep.backends import checkpoints
from sweep.backends.checkpoints import DiskFault, Manifest, Saver
from sweep.errors import first_line


class Held(Counting):
    """Writes when it is allowed to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.allowed = threading.Event()
        self.threads: list[str] = []
        self.error = error

    def save(self, folder: Path) -> Callable[[], None]:
        def write() -> None:
            self.threads.append(threading.current_thread().name)
            assert self.allowed.wait(1500)
            (folder / "state.json").write_text("[]")
            if self.error is not None:
                raise self.error

        return write


@pytest.fixture
def held() -> Iterator[Held]:
    trainable = Held()
    yield trainable
    trainable.allowed.set()


def saver(folder: Path, every_s: float = 0.0, pause_s: float = 0.0) -> Saver:
    return Saver(folder, every_s, keep=2, pause_s=pause_s)


def names(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] + path.name[-2:] for path in folder.iterdir())


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, held: Held) -> None:
    one = saver(tmp_path)
    one.save(held, Manifest(1), beside=True)
    assert [name[:7] for name in names(tmp_path)] == ["writing"]
    held.allowed.set()
    one.settle()
    assert names(tmp_path) == ["epoch01"]
    assert held.threads == ["checkpoint_0"]
    assert checkpoints.read_verified_manifest(tmp_path / "epoch-000001").epoch == 1


def test_the_next_checkpoint_waits_for_the_one_before(tmp_path: Path, held: Held) -> None:
    one = saver(tmp_path)
    one.save(held, Manifest(1), beside=True)
    threading.Timer(0.2, held.allowed.set).start()
    one.save(held, Manifest(2), beside=False)
    assert names(tmp_path) == ["epoch01", "epoch02"]
    assert one.blocked_s > 0
    one.save(held, Manifest(2), beside=False)  # it is saved
    assert len(held.threads) == 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device"), DiskFault),
        (ValueError("not serializable"), ValueError),
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_what_fails_while_it_is_written_is_told_and_leaves_nothing(
    tmp_path: Path, error: Exception, expected: type[Exception], beside: bool
) -> None:
    failing = Held(error)
    failing.allowed.set()
    one = saver(tmp_path)

    def save_whole() -> None:
        one.save(failing, Manifest(1), beside=beside)
        one.settle()

    with pytest.raises(expected, match=str(error.args[-1])):
        save_whole()
    assert names(tmp_path) == []


def test_when_a_checkpoint_is_due(tmp_path: Path) -> None:
    assert saver(tmp_path).is_due([3.0])  # every epoch
    rare = saver(tmp_path, every_s=math.inf)
    assert [rare.is_due(losses) for losses in ([3.0], [4.0], [2.0, 3.0], [1.0, 0.5])] == [
        True,
        False,
        False,
        True,
    ]
    assert not saver(tmp_path, every_s=60.0, pause_s=60.0).is_due([1.0])


def test_deleting_under_a_writer_raises_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            with suppress(OSError):
                folder = checkpoints.get_trial_folder(tmp_path, 3) / "writing-1"
                folder.mkdir(parents=True, exist_ok=True)
                for number in range(9):
                    (folder / str(number)).touch()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            checkpoints.delete_checkpoints(tmp_path, 3)
    finally:
        over.set()
        writer.join()
    checkpoints.delete_checkpoints(tmp_path, 3)
    checkpoints.finish_deletions(tmp_path)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_what_an_error_says_is_told_in_one_readable_line() -> None:
    assert first_line(RuntimeError("\x1b[31mred \udcff\nand more")) == "red \\udcff"
