"""A trainable that says what it takes of a GPU; a copy lies beside its sweep file. No TensorFlow."""

import json
import os
import time

from sweep.contract import EpochReported, Facts, OutOfMemory

WHOLE = 10e9


class Packed:
    """Epochs of 50 ms, ``gb`` of a GPU, with which it fails where that is too much."""

    def begin(self, assignment):
        self.given, self.done, self.turn = assignment, 0, assignment.params["a"]

    def train(self, report):
        share, gb = self.given.devices.gpus, self.given.params["gb"]
        while self.done < self.given.epochs:
            if gb * 1e9 > share * WHOLE:
                raise OutOfMemory(f"{gb} GB on {share} of a GPU")
            time.sleep(0.05)
            self.done += 1
            mps = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", 0))
            measures = {
                "gpus": share,
                "gpu_memory_bytes": WHOLE,
                "gpu_memory_peak_bytes": gb * 1e9,
                "mps": mps,
            }
            # As it says, not as it is: the machine that tests run on is busy.
            told = EpochReported(
                trial=0,
                epoch=self.done,
                metrics={"loss": 1.0 / self.done},
                time=time.time(),
                time_s=0.05,
                examples_per_s=1000.0 * min(1.0, 2 * share),
                measures=measures,
            )
            if not report(told):
                return

    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))

    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done

    def facts(self):
        return Facts(devices="gpu:0", structure=json.dumps({"gb": [self.given.params["gb"]]}))
