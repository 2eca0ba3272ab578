"""The recurrent classifiers of tutek2020 to audit: base, tying, MLM, and one that is trained to hide the words it uses.

    ATTNSCOPE_DATA=DATA python examples/train_recurrent.py models            all four on SST, about 15 minutes on a core
    ATTNSCOPE_DATA=DATA python examples/train_recurrent.py models hiding     one of them
    attnscope audit models/sst-hiding --out audit

Settings are those of the study at the published sizes, with additive attention.
"""

import argparse
import shutil
import time
from pathlib import Path

from attnscope.lab.experiment import train
from attnscope.lab.store import Store
from attnscope.studies.tutek2020.deceptive import deceptive_experiment
from attnscope.studies.tutek2020.experiments import BASE, MLM, PROFILES, TYING, model_experiment

CORPUS, ATTENTION, HIDING = "sst", "additive", "hiding"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", nargs="*", default=[BASE, TYING, MLM, HIDING])
    given = parser.parse_args()
    sizes = PROFILES["paper"]
    for name in given.model:
        begun = time.time()
        hides = name == HIDING
        experiment = deceptive_experiment(sizes, CORPUS) if hides else model_experiment(sizes, CORPUS, ATTENTION, name)
        run = train(experiment, Store(given.folder / "runs"))
        shutil.copytree(run.folder, given.folder / f"{CORPUS}-{name}", dirs_exist_ok=True)
        print(f"{name}: accuracy {run.summary['word_accuracy']:.3f}, {time.time() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
