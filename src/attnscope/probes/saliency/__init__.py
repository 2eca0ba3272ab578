"""Which words influence the output? (snell2021 §5.1, Δ; tutek2020)

Every method gives a number for each output word t and source word l, positive where the word raises the output, which
is the log-probability of the gold word y_t unless another function of the trace is given as `of`. `.lowering` is the
other sign. The model is asked in evaluation mode and left as it was: modes, gradients, hooks.
"""

from collections.abc import Callable

from attnscope.probes.saliency.embeddings import EmbedsSource, Saliency, gold_log_probability, with_embeddings
from attnscope.probes.saliency.gradients import gradient_norm, gradient_times_input, influence
from attnscope.probes.saliency.integrated import IntegratedGradients, integrated_gradients
from attnscope.probes.saliency.leaving_out import leave_one_out

METHODS: dict[str, Callable[..., Saliency]] = {
    "influence": influence,
    "gradient_norm": gradient_norm,
    "gradient_times_input": gradient_times_input,
    "leave_one_out": leave_one_out,
    "integrated_gradients": integrated_gradients,
}

__all__ = [
    "METHODS", "EmbedsSource", "IntegratedGradients", "Saliency", "gold_log_probability", "gradient_norm",
    "gradient_times_input", "influence", "integrated_gradients", "leave_one_out", "with_embeddings",
]  # fmt: skip
