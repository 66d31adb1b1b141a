"""A click-through model of which rank 0 kills or stops another process a moment after an epoch, once."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from trainables.click_through import ClickThrough
from trainables.session import TrialSession

HERE = Path(__file__).parent


class Listed(TrialSession):
    def join(self, devices, training):
        super().join(devices, training)
        with (HERE / "joined.txt").open("a") as file:
            file.write(f"{devices.ranks.rank} {os.getpid()}\n")


class Faulty(ClickThrough):
    __trainable__ = Listed

    def on_epoch_end(self, epoch, logs, model, hp):
        rank, how = hp.integer("rank"), hp.text("how")
        done = HERE / f"{rank}-{how}.done"
        if epoch != 2 or rank == 0 or done.exists():
            return
        done.touch()
        joined = dict(line.split() for line in (HERE / "joined.txt").read_text().splitlines())

        def strike():
            time.sleep(0.3)
            os.kill(
                int(joined[str(rank)]), {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}[how]
            )

        threading.Thread(target=strike, daemon=True).start()
