"""The strategies for spaces lie with the tests of spaces."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "space"))
