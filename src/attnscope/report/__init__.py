"""How a study is read: one HTML file that needs nothing else, and a few lines in the terminal."""

from attnscope.report.html import write_report
from attnscope.report.markdown import write_markdown
from attnscope.report.terminal import claims_table

__all__ = ["claims_table", "write_markdown", "write_report"]
