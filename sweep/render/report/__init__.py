"""One or several sweeps as one HTML file that needs nothing else: no network, every text escaped."""

from sweep.render.report.page import page

__all__ = ["page"]
