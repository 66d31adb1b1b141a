"""Count the files that a batch goes through, from what an author's `data` returns to the update of the weights.

`python tools/batch_way.py` begins one trial of `DigitsCNN` on the CPU, trains it for one epoch, traces included, and
prints how many files of `trainables/` the batch's way leads through; `-v` names them with their functions.

The way has three parts: what `data` returned is wrapped (`_cut` in `recipe/author_data.py`), chunks of it are handed
out (`epoch` in `data/passes.py`), and the graph of an epoch gathers batches from a chunk and updates the weights
(`train_batches` in `loop/graph_program.py`). A file counts where one of its functions is called within a part, in any
thread, or waits for it: who calls is on the way as much as who is called. Bodies of modules and classes do not count,
nor what only makes the model, the program or the report. The first figure is of the rooms that handle batches (data,
devices, numbers, replicas, loop); the second is of all rooms, and of the model itself.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).resolve().parent.parent
TRAINING = ROOT / "trainables"
ROOMS = ("data", "devices", "numbers", "replicas", "loop")
PARTS = {("author_data.py", "_cut"), ("passes.py", "epoch"), ("graph_program.py", "train_batches")}


class Way:
    """The functions of the training that are called within the parts of the way, or wait for them."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()

    def record(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call, for `sys.setprofile`."""
        if event != "call" or not _is_ours(frame.f_code):
            return
        stack, present = list[CodeType](), frame
        while present is not None:
            stack.append(present.f_code)
            present = present.f_back
        stack = [code for code in stack if _is_ours(code)]
        if any(map(_is_part, stack)):
            self.codes.update(stack if _is_part(frame.f_code) else [frame.f_code])

    def files(self, rooms: tuple[str, ...] = ()) -> dict[str, list[str]]:
        """Return the names of the recorded functions by file, in all folders or only in ``rooms``."""
        found: dict[str, set[str]] = {}
        for code in self.codes:
            place = Path(code.co_filename).relative_to(TRAINING)
            if not rooms or place.parts[0] in rooms:
                found.setdefault(place.as_posix(), set()).add(code.co_name)
        return {file: sorted(found[file]) for file in sorted(found)}


def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(f"{TRAINING}/") and bool(
        code.co_flags & inspect.CO_OPTIMIZED
    )


def _is_part(code: CodeType) -> bool:
    return (Path(code.co_filename).name, code.co_name) in PARTS


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="name the files and their functions as well"
    )
    verbose = parser.parse_args().verbose
    sys.path.insert(0, str(ROOT))
    from sweep.contract import Assignment, Devices
    from trainables.digits_cnn import DigitsCNN
    from trainables.session import TrialSession

    session, way = TrialSession(DigitsCNN()), Way()
    trial = Assignment(
        trial=0,
        params={"learning_rate": 0.05, "batch_size": 64},
        seed=0,
        epochs=1,
        devices=Devices(gpus=0),
        training={},
        objective="val_loss",
    )
    threading.setprofile(way.record)
    sys.setprofile(way.record)
    try:
        session.begin(trial)
        session.train(lambda epoch: True)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    sources = list(TRAINING.rglob("*.py"))
    spared = [
        path
        for path in sources
        if path.parent == TRAINING and path.name not in ("session.py", "__init__.py")
    ]
    spared += [path for path in sources if path.parent.name == "doctor"]
    spared.remove(TRAINING / "keras_trainable.py")
    lines = {path: len(path.read_text().splitlines()) for path in sources}
    print(f"{'files / lines of trainables/':<48} {len(lines)} / {sum(lines.values()):,}")
    rest = sum(lines.values()) - sum(lines[path] for path in spared)
    print(f"{'  without models and doctor':<48} {len(lines) - len(spared)} / {rest:,}")
    print(f"{'files of a batch':<48} {len(way.files(ROOMS))}")
    print(f"{'  with recipe, state, session and the model':<48} {len(way.files())}")
    if verbose:
        for file, functions in way.files().items():
            print(f"{file}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
