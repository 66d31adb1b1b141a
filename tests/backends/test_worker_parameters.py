"""Parameters that nothing reads: told after the first epoch that shows it, and once."""

from __future__ import annotations

from sweep.backends.worker import UnreadParameters


def test_what_no_trial_reads_is_told_once_with_what_was_asked_for() -> None:
    unread = UnreadParameters(["widht", "depth", "rate"])
    params = {"widht": 1, "depth": 2}
    watched = unread.watched(params)
    watched.get("width"), watched["depth"]
    line = "nothing has read parameter 'widht' in a whole epoch; did you mean 'width'?"
    assert (unread.told(params), unread.told(params)) == ([line], [])


def test_no_name_is_suggested_where_none_is_like_it() -> None:
    unread = UnreadParameters(["rate"])
    unread.watched({"rate": 1}).get("mean_pool")
    assert unread.told({"rate": 1}) == ["nothing has read parameter 'rate' in a whole epoch"]


def test_what_an_earlier_trial_has_read_is_known_and_an_absent_one_waits() -> None:
    unread = UnreadParameters(["rate"])
    assert unread.watched({"other": 1})["other"] == 1
    assert unread.told({"other": 1}) == []
    assert unread.watched({"rate": 1})["rate"] == 1
    assert unread.told({"rate": 1}) == []


def test_each_trial_tells_what_it_has_read() -> None:
    unread = UnreadParameters([])
    assert unread.watched({"a": 1, "b": 2})["a"] == 1
    assert unread.now == {"a"}
    dict(unread.watched({"a": 1, "b": 2}))
    assert unread.now == {"a", "b"}
    unread.watched({"a": 1})
    assert unread.now == set()
