"""One or several sweeps as one HTML file that needs nothing else: no network, every text escaped."""

from sweep.render.report.html import page

__all__ = ["page"]
