"""What is recorded of namespaces, and put back."""

from __future__ import annotations

import tempfile
from typing import Any

from sweep.state.namespaces import Namespace
from sweep.state.recorded_values import RecordedValues


def test_a_global_that_only_a_trial_has_made_the_authors_is_not_removed() -> None:
    """A trial may bind a name of a notebook to another function, which uses other globals than the one before."""
    scope: dict[str, Any] = {"__name__": "__main__", "function": abs, "table": [1]}
    recorded = RecordedValues()
    recorded.record([Namespace("__main__", scope, only=frozenset({"function"}))])
    scope["function"] = round
    scope["new"] = 1
    used_now = [Namespace("__main__", scope, only=frozenset({"function", "table", "new"}))]
    changed = recorded.find_changed(used_now)
    assert changed == {"__main__.function", "__main__.new"}
    recorded.note_after_run(used_now, changed)
    assert not recorded.restore(used_now, changed)
    assert scope == {"__name__": "__main__", "function": abs, "table": [1]}


def test_a_temporary_file_cannot_be_copied_and_stays() -> None:
    """A copy of its wrapper has no file at first, and then raises KeyError for every attribute."""
    with tempfile.NamedTemporaryFile() as file:
        scope: dict[str, Any] = {"__name__": "__main__", "file": file, "table": [1]}
        namespace = Namespace("__main__", scope, only=frozenset({"file", "table"}))
        recorded = RecordedValues()
        recorded.record([namespace])
        scope["table"].append(2)
        changed = recorded.find_changed([namespace])
        assert changed == {"__main__.table"}
        recorded.note_after_run([namespace], changed)
        assert not recorded.restore([namespace], changed)
        assert scope["file"] is file
        assert scope["table"] == [1]
