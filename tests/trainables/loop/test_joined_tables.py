from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small import Small, assignment

from trainables.keras_trainable import session_of
from trainables.loop.joined_tables import assign_joined_tables

pytestmark = pytest.mark.keras


def test_a_checkpoint_of_servers_is_restored_on_each_of_several_replicas(tmp_path: Path) -> None:
    it = Small()
    it.begin(assignment(gpus=2))
    trial = session_of(it).trial
    state = trial.program.state
    # servers write one value of each variable
    values = {path: (copies[0] + 1,) for path, copies in state.copy_all().items()}
    assign_joined_tables(tmp_path, trial, {"tables": {}}, values)
    for variable in trial.program.model.variables:
        copies = state.read(variable.value)
        assert copies is not None
        assert len(copies) == 2
        for copy in copies:
            np.testing.assert_array_equal(copy, values[variable.path][0])
