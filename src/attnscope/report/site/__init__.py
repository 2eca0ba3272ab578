"""A site of all studies: a folder of pages with figures, claims, published numbers, audits and explorers."""

from attnscope.report.site.write import write_site

__all__ = ["write_site"]
