"""Reports of studies: one self-contained HTML file, Markdown tables, a table in the terminal, a site."""

from attnscope.report.headlines import write_headlines
from attnscope.report.html import write_report
from attnscope.report.text import claims_table, write_markdown

__all__ = ["claims_table", "write_headlines", "write_markdown", "write_report"]
