"""An error of an author's code: its line first, and what wraps the cause left out."""

from __future__ import annotations

import json
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import sweep
from sweep import author_code, errors
from sweep.errors import InputError, TrainableError


def raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011  # whatever it is
        call()
    return caught.value


def in_a_library() -> object:
    return json.loads("[1,")


def test_the_author_s_line_comes_first() -> None:
    found = errors.reason_of(raised(in_a_library))
    line = in_a_library.__code__.co_firstlineno + 1
    where = f"test_errors_tracebacks.py:{line} in in_a_library"
    assert found == f"JSONDecodeError: {where}: Expecting value: line 1 column 4 (char 3)"


def test_an_error_of_which_only_the_type_is_known_is_its_type() -> None:
    assert errors.reason_of(ValueError()) == "ValueError"
    assert errors.reason_of(ValueError("  ")) == "ValueError"
    assert errors.reason_of(ValueError("no")) == "ValueError: no"


def test_frames_of_others_are_one_line() -> None:
    told = errors.folded_traceback(raised(in_a_library)).splitlines()
    assert [line for line in told if line.startswith("  ...")] == ["  ... 3 frames of json"]
    assert '    return json.loads("[1,")' in told
    assert told[0] == "Traceback (most recent call last):"
    assert told[-1].startswith("json.decoder.JSONDecodeError: Expecting value")


def test_frames_are_folded_by_newer_versions_of_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    format_frame = traceback.StackSummary.format_frame_summary

    # as from Python 3.13 on, where a frame is told whether to be coloured
    def format_frame_summary(
        stack: traceback.StackSummary, frame: traceback.FrameSummary, *, colorize: bool = False
    ) -> str:
        return format_frame(stack, frame)

    def format_stack(stack: traceback.StackSummary, **options: bool) -> list[str]:
        return [stack.format_frame_summary(frame, colorize=False) for frame in stack]  # type: ignore[call-arg]

    monkeypatch.setattr(traceback.StackSummary, "format_frame_summary", format_frame_summary)
    monkeypatch.setattr(traceback.StackSummary, "format", format_stack)
    told = errors.folded_traceback(raised(in_a_library)).splitlines()
    assert [line for line in told if line.startswith("  ...")] == ["  ... 3 frames of json"]
    assert '    return json.loads("[1,")' in told


def test_without_a_line_of_the_author_s_all_frames_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = raised(in_a_library)
    monkeypatch.setattr(errors, "is_author_file", lambda file: False)
    assert errors.folded_traceback(error).count("File ") == 5
    assert errors.reason_of(error).startswith("JSONDecodeError: Expecting value")


def test_what_it_came_from_is_folded_as_well() -> None:
    def twice() -> None:
        try:
            in_a_library()
        except ValueError as error:
            raise RuntimeError("no settings") from error

    told = errors.folded_traceback(raised(twice))
    assert "  ... 3 frames of json\n" in told
    assert "The above exception was the direct cause" in told
    assert told.endswith("RuntimeError: no settings\n")


@pytest.mark.parametrize("error", [InputError.one("file", "wrong"), TrainableError("file: wrong")])
def test_what_this_package_raises_says_itself_what_to_change(error: Exception) -> None:
    def fails() -> None:
        raise error

    assert errors.describe_without_type(raised(fails)) == "file: wrong"


KERAS = """Exception encountered when calling Lay.call().

Could not automatically infer the output shape / dtype of 'lay' (of type Lay).

Error encountered:

Dimensions must be equal, but are 6 and 5

Arguments received by Lay.call():
  • args=('<KerasTensor shape=(None, 6)>',)"""
AUTOGRAPH = f"""in user code:

    File "{Path(__file__).parent}/models.py", line 31, in f  *
        return tf.matmul(a, b), b
    File "{sysconfig.get_path("purelib")}/tensorflow/ops.py", line 3, in op
        raise

    ValueError: Input 'b' has type int32"""
INSIDE = f"""in user code:

    File "{Path(__file__).parent}/models.py", line 31, in f  *
        return layer(a)

    ValueError: Exception encountered when calling layer 'd' (type Dense).

    Matrix size-incompatible

    Call arguments received by layer"""
GRAPH = f"""Graph execution error:

Detected at node compile_loss/mine/GatherV2 defined at (most recent call last):
  File "{Path(__file__).parent}/models.py", line 36, in mine

indices[0,0] = 7 is not in [0, 2)
\t [[{{{{node compile_loss/mine/GatherV2}}}}]] [Op:__inference_run_2]"""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("\nsecond", "second"),
        (KERAS, "Lay.call(): Dimensions must be equal, but are 6 and 5"),
        (
            "Exception encountered when calling Lay.call().",
            "Exception encountered when calling Lay.call().",
        ),
        (AUTOGRAPH, "models.py:31 in f: Input 'b' has type int32"),
        (INSIDE, "models.py:31 in f: 'd' (type Dense): Matrix size-incompatible"),
        ("in user code:\n\n    somewhere", "somewhere"),
        (GRAPH, "models.py:36 in mine: indices[0,0] = 7 is not in [0, 2)"),
        ("Graph execution error:", "Graph execution error:"),
        ("", ""),
    ],
)
def test_the_cause_is_taken_out_of_what_wraps_it(message: str, expected: str) -> None:
    found = errors.describe_without_type(ValueError(message))
    assert found == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (__file__, True),
        (str(Path(sweep.__file__)), False),
        (str(Path(sweep.__file__).parents[1] / "trainables/keras_trainable.py"), False),
        (str(Path(sweep.__file__).parents[1] / "trainables/session.py"), False),
        (str(Path(sweep.__file__).parents[1] / "trainables/keras_private.py"), False),
        (str(Path(sweep.__file__).parents[1] / "trainables/tensorflow_private.py"), False),
        (str(Path(sweep.__file__).parents[1] / "trainables/loop/update.py"), False),
        (str(Path(sweep.__file__).parents[1] / "trainables/digits_cnn.py"), True),
        (pytest.__file__, False),
        (json.__file__, False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
        ("/tmp/__autograph_generated_file0.py", False),
        ("/home/somebody/models.py", True),
    ],
)
def test_whose_a_file_is(file: str, expected: bool) -> None:
    assert author_code.is_author_file(file) is expected
    assert author_code.is_installed(file) is (file in (pytest.__file__, json.__file__))


def test_the_stack_in_a_graph_s_message_is_folded() -> None:
    frame = f'  File "{json.__file__}", line 3, in load\n\n'
    own = f'  File "{__file__}", line 7, in model\n\n'
    head = "Graph execution error:\n\nDetected at node x defined at:\n"
    text = f"{head}{frame * 3}{own}{frame}Received a label value of 2."
    error = ValueError(f"{text}  Label values: 2 2 1\n\t [[{{{{node x}}}}]]")
    told = errors.folded_traceback(error)
    assert told.count("File ") == 1
    assert "  ... 3 frames\n" in told
    assert "  ... 1 frame\n" in told
    assert "label value of 2.\n" in told
    assert (
        errors.reason_of(error)
        == "ValueError: test_errors_tracebacks.py:7 in model: Received a label value of 2."
    )


def test_a_message_that_ends_in_frames_says_so_and_what_was_raised_from_it_is_whole() -> None:
    frame = f'  File "{json.__file__}", line 3, in load\n'

    def explained() -> None:
        try:
            raise ValueError(
                f"Graph execution error:\n\nDetected at node x defined at:\n{frame * 2}"
            )
        except ValueError as error:
            raise RuntimeError("no  Label values: here") from error

    told = errors.folded_traceback(raised(explained))
    assert "Detected at node x defined at:\n  ... 2 frames\n" in told
    assert told.count("File ") == 3  # the call and the raise of one, the raise of the other
    assert told.endswith(
        'raise RuntimeError("no  Label values: here") from error\nRuntimeError: no  Label values: here\n'
    )


def test_an_error_that_is_its_own_cause_ends() -> None:
    error = ValueError("round")
    error.__cause__ = error
    assert "round" in errors.folded_traceback(error)
