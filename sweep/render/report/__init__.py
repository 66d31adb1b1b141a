"""The HTML report: its data as JSON, its page template, and its content security policy."""

from sweep.render.report.html_page import page

__all__ = ["page"]
