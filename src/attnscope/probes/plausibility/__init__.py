"""Does attention fall on what people marked? (ERASER: DeYoung et al. 2020, §4.1)

Average precision and the area under the curve read a score as a ranking; token F1 and IOU F1 read its top words as a
rationale of its own. Each stands beside what a random score would get. `Plausible` gathers them over a stream of texts.
"""

from attnscope.probes.plausibility.ranking import area_under_curve, average_precision, chance_of_average_precision
from attnscope.probes.plausibility.rationales import chance_of_token_f1, iou_f1, runs, token_f1
from attnscope.probes.plausibility.stream import MARKED, Agreeing, Plausibility, Plausible, marked_mass, plausible

__all__ = [
    "MARKED", "Agreeing", "Plausibility", "Plausible", "area_under_curve", "average_precision",
    "chance_of_average_precision", "chance_of_token_f1", "iou_f1", "marked_mass", "plausible", "runs", "token_f1",
]  # fmt: skip
