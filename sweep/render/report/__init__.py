"""The HTML report: its data as JSON, its page template, and its content security policy."""

from sweep.render.report.html_page import SCRIPTS, Sections, page, read_asset, sections

__all__ = ["SCRIPTS", "Sections", "page", "read_asset", "sections"]
