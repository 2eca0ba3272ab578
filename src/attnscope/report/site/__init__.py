"""How are all studies read together? As a folder of pages: figures first, then claims, then words."""

from attnscope.report.site.write import write_site

__all__ = ["write_site"]
