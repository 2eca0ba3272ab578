"""`make bench`: every benchmark in turn, each a ratio against a named peer in this run.

python -m benchmarks              all of them
python -m benchmarks kendall      one
"""

import json
import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(NAMES)}")
    for name in names or NAMES:
        module = import_module(f"benchmarks.{name}")
        print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
        print(json.dumps(module.main(), indent=2), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
