"""For which GPUs XLA is left alone, since it would end the process."""

from __future__ import annotations

import pytest

from trainables.devices.gpu_support import describe_unknown_gpu, find_unknown_gpu

pytestmark = pytest.mark.keras

ARCHITECTURES = ("sm_80", "sm_89", "compute_90")


def test_a_card_of_a_later_generation_is_named() -> None:
    assert describe_unknown_gpu([(8, 0), (12, 0)], ARCHITECTURES) == (
        "a GPU of compute capability 12.0 is newer than this TensorFlow, which knows sm_80, sm_89, compute_90"
    )


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (7, 0)])
def test_other_cards_are_not(capability: tuple[int, int]) -> None:
    assert describe_unknown_gpu([capability], ARCHITECTURES) == ""


def test_nothing_is_said_where_the_build_does_not_name_its_architectures() -> None:
    assert describe_unknown_gpu([(12, 0)], ()) == ""


def test_a_machine_without_a_gpu() -> None:
    assert find_unknown_gpu() == ""
