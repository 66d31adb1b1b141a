"""The templates, scripts and style sheet of the live page."""
