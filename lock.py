"""Print constraints-hashes.txt from a report of pip: `make lock`."""

import json
import sys

HEADER = """\
# The set of packages that the tests run with, each with the SHA-256 of its file: CPython 3.11, Linux on x86-64.
# Nothing asks for this file. `make lock` writes it anew. To install just these files:
#     pip install -c constraints.txt torch
#     pip install --no-deps --require-hashes -r constraints-hashes.txt
#     pip install --no-deps -e .
# torch is left out: it has one build per accelerator, each with its own hash.
"""


def main() -> None:
    lines = []
    for package in json.load(sys.stdin)["install"]:
        name, version = package["metadata"]["name"].lower(), package["metadata"]["version"]
        if name not in ("attnscope", "torch"):
            lines.append(
                f"{name}=={version} --hash=sha256:{package['download_info']['archive_info']['hashes']['sha256']}"
            )
    print(HEADER + "\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
