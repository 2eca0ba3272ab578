"""The profiles of the study, and the training settings that its findings share.

Sizes of networks and data are those of each finding, by the name of the profile. Seeds below FIRST_SEED were used to
choose settings; they are not judged.
"""

from attnscope.studies.finding import Profile
from attnscope.training import TrainingSettings

FIRST_SEED = 10
PROFILES = {
    "quick": Profile("quick", seeds=3, first_seed=FIRST_SEED),
    "paper": Profile("paper", seeds=5, first_seed=FIRST_SEED),
}
# Teacher forcing throughout, as is usual for Transformers.
ADAM = TrainingSettings(
    learning_rate=1e-3, betas=(0.9, 0.98), max_grad_norm=1.0, teacher_forcing=1.0, warmup=50, decoding="teacher_forced"
)
