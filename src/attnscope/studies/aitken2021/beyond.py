"""Beyond the paper: does the picture of figure 2 depend on the optimiser?

The author's Adam has an ε of 0.1, so that small gradients move weights as in SGD. With the usual ε of 1e-8, as most
people would train, an AED network learns the task as well. Does it learn the same?
"""

from dataclasses import replace

from attnscope.lab.experiment import Experiment
from attnscope.studies.aitken2021.experiments import AED, Sizes, one_to_one
from attnscope.studies.aitken2021.fig2 import claims_attending, draw_attending, measure_attending, table
from attnscope.studies.finding import Finding

USUAL = "AED, ε = 1e-8"


def experiments(sizes: Sizes) -> dict[str, Experiment]:
    author_like = one_to_one(AED, sizes)
    usual = replace(author_like.training, learning_rate=1e-3, epsilon=1e-8, betas=(0.9, 0.999), max_grad_norm=0.1)
    return {"AED": author_like, USUAL: replace(author_like, training=usual)}


OPTIMISER = Finding(
    name="optimiser",
    title="Beyond the paper: the same network trained with Adam's usual ε",
    section="beyond; figure 2",
    experiments=experiments, measure=measure_attending, table=table,
    claims=lambda measured: claims_attending(USUAL, measured),
    figure=lambda measured: measured.first(USUAL)["picture"], draw=draw_attending,
    notes=(
        "The claims are those of figure 2, asked of the network with the usual ε. That it may differ was known before "
        "these claims were written: an earlier run of ours with this optimiser had shown it.",
        "What this does not show: which of the two networks is the better explanation of attention elsewhere.",
    ),
)  # fmt: skip
