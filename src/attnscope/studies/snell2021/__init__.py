"""Snell et al. 2021, Approximating How Single Head Attention Learns: how attention is learned."""

from attnscope.studies.finding import Study
from attnscope.studies.snell2021.experiments import PROFILES

STUDY = Study(name="snell2021", findings=(), profiles=PROFILES)
