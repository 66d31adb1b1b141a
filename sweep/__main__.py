"""``python -m sweep``."""

from sweep.cli import main

main()
