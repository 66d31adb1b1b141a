"""Options, view and outcome of a session, and the file that receives the output of Ray and TensorFlow."""

from sweep.runner.debug_log import redirected, silence_libraries
from sweep.runner.interface import Options, Outcome, View

__all__ = ["Options", "Outcome", "View", "redirected", "silence_libraries"]
