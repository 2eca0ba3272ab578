"""Do encoder and decoder walk the same curve in time, and where do the two meet? (aitken2021 §3, §4.1, figures 2, 4)"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.probes.decomposition.components import Components
from attnscope.probes.decomposition.principal import principal_axes
from attnscope.probes.drawing import Axes


@dataclass(frozen=True)
class Walks(Displayed):
    """The temporal components μ(t) of the encoder and μ(s) of the decoder, in the order of time."""

    encoder: Float[Tensor, "source key"]
    decoder: Float[Tensor, "target key"]
    steps: int  # of the decoder that count: averages beyond are of few sentences

    @cached_property
    def products(self) -> Float[np.ndarray, "target source"]:
        """μ(s) · μ(t)."""
        aligned: np.ndarray = (self.decoder @ self.encoder.T).cpu().numpy()
        return aligned

    @property
    def attention(self) -> Float[np.ndarray, "target source"]:
        """The softmax over encoder steps of μ(s) · μ(t): the attention that time alone would give."""
        return torch.from_numpy(self.products).softmax(-1).numpy()

    @property
    def peaks(self) -> Int[np.ndarray, " steps"]:
        """The encoder step with the largest μ(s) · μ(t), for every decoder step that counts."""
        largest: np.ndarray = self.products[: self.steps].argmax(1)
        return largest

    @property
    def matching(self) -> float:
        """The mean cosine of μ(t) of encoder and decoder at the same t, each curve centred."""
        curves = [side[: self.steps] for side in (self.encoder, self.decoder)]
        first, second = (curve - curve.mean(0) for curve in curves)
        return torch.cosine_similarity(first, second, dim=1).mean().item()

    @property
    def peak_at_own_step(self) -> float:
        """The share of decoder steps s whose μ(s) · μ(t) is largest at t = s."""
        return float((self.peaks == np.arange(self.steps)).mean())

    @property
    def near_the_diagonal(self) -> Float[np.ndarray, " steps"]:
        """For each decoder step, how much of the temporal attention lies within one position of it."""
        weights = self.attention[: self.steps]
        own, positions = np.indices(weights.shape)
        near: np.ndarray = (weights * (abs(own - positions) <= 1)).sum(1)
        return near

    @property
    def adjacent(self) -> float:
        """The share of components whose nearest neighbour is the one before or after, on the same side."""
        points = torch.cat([self.encoder, self.decoder]).cpu().numpy()
        distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
        np.fill_diagonal(distances, np.inf)
        own, nearest = np.arange(len(points)), distances.argmin(1)
        side = own >= len(self.encoder)
        return float(((abs(nearest - own) == 1) & (side[nearest] == side)).mean())

    @property
    def meeting_step(self) -> int:
        """The encoder step whose component is nearest to the decoder's first."""
        return int((self.encoder - self.decoder[0]).norm(dim=1).argmin())

    def in_few_directions(self, axes: int = 3) -> float:
        """The share of the variance of all components along the first principal axes."""
        return principal_axes(torch.cat([self.encoder, self.decoder]), axes).explained.sum().item()

    def table(self) -> pd.DataFrame:
        """A row a decoder step that counts."""
        columns = {"peak": self.peaks, "near the diagonal": self.near_the_diagonal}
        return pd.DataFrame(columns).rename_axis("step")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Both curves, in the plane in which they are widest."""
        from attnscope import plots

        plane = principal_axes(torch.cat([self.encoder, self.decoder]), 2)
        curves = {"encoder": self.encoder, "decoder": self.decoder}
        return plots.trajectories({name: plane.project(curve).numpy() for name, curve in curves.items()}, ax=ax)


def walks(encoder: Components, decoder: Components, head: int = 0) -> Walks:
    """Decoder steps count that at least half of the sentences have."""
    counts = decoder.time_counts
    return Walks(encoder.temporal[head], decoder.temporal[head], int((counts >= counts.max() / 2).sum()))
