"""The command line with what is ours: `python mine.py list`, and every other command of attnscope."""

import cosine  # noqa: F401 (each makes itself known when it is imported)
import doubling  # noqa: F401
import spread  # noqa: F401

from attnscope.cli import main
from attnscope.studies import STUDIES

STUDIES.append("looking")  # a study is loaded from the module of its name when it is asked for

if __name__ == "__main__":
    main()
