"""How a study is read: one HTML file that needs nothing else, and a few lines in the terminal."""

from attnscope.report.html import write_report
from attnscope.report.text import claims_table, write_markdown

__all__ = ["claims_table", "write_markdown", "write_report"]
