"""When Python looks for garbage while a program is made."""

from __future__ import annotations

import gc

import pytest

from trainables.loop.garbage import collecting_later

pytestmark = pytest.mark.keras


def test_nothing_is_collected_inside_the_block() -> None:
    with collecting_later():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collection_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="no"), collecting_later():
        raise ValueError("no")
    assert gc.isenabled()


def test_what_somebody_has_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with collecting_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
