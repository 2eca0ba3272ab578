"""The command line with our own names: `python mine.py list`, and every other command of attnscope."""

import cosine  # noqa: F401 (each registers itself when it is imported)
import doubling  # noqa: F401
import spread  # noqa: F401

from attnscope.cli import main
from attnscope.studies import STUDIES

STUDIES.append("guided")  # a study is loaded from the module of its name when it is used

if __name__ == "__main__":
    main()
