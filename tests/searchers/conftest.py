"""The strategies for spaces lie with the tests of spaces."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.append(str(Path(__file__).parent.parent / "space"))

settings.register_profile("sweep", deadline=None, max_examples=20)
settings.load_profile("sweep")
