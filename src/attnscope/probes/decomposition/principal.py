"""In which few directions does a set of components lie? (aitken2021 §3, footnote 4)"""

from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.display import Displayed
from attnscope.probes.accumulator import Sums
from attnscope.probes.drawing import Axes


@dataclass(frozen=True)
class Principal(Displayed):
    """Principal axes of a set of vectors, the widest first, and the fraction of the variance along each.

    The sign of an axis means nothing; it is chosen so that the axis' largest entry is positive.
    """

    mean: Float[Tensor, " key"]
    axes: Float[Tensor, "axes key"]
    explained: Float[Tensor, " axes"]

    def project(self, vectors: Float[Tensor, "*points key"], centred: bool = True) -> Float[Tensor, "*points axes"]:
        """Coordinates along the axes. A direction, such as a readout vector, is not to be centred."""
        moved = vectors.to(self.mean) - self.mean if centred else vectors.to(self.mean)
        return moved @ self.axes.T

    def table(self) -> pd.DataFrame:
        explained = pd.DataFrame({"explained": self.explained.cpu().numpy()}).rename_axis("axis")
        return explained.assign(together=explained["explained"].cumsum())

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        table, x = self.table(), torch.arange(1, len(self.explained) + 1).numpy()
        curves = {"explained, up to this axis": table["together"].to_numpy()}
        return plots.profiles(x, curves, ax=ax, xlabel="axis", ylabel="fraction of the variance")


def principal_axes(vectors: Float[Tensor, "points key"], count: int = 3) -> Principal:
    """PCA of a set that is at hand, such as all temporal or all input components."""
    from sklearn.decomposition import PCA  # takes a second to load

    fitted = PCA(min(count, *vectors.shape), svd_solver="full").fit(vectors.double().cpu().numpy())
    axes = torch.from_numpy(fitted.components_)
    return Principal(torch.from_numpy(fitted.mean_), signed(axes), torch.from_numpy(fitted.explained_variance_ratio_))


@dataclass(frozen=True)
class MomentSums(Sums):
    """First and second moments of a stream of vectors: all that an exact PCA needs."""

    total: Float[Tensor, "heads key"]
    squares: Float[Tensor, "heads key key"]
    states: Int[Tensor, ""]

    def principal(self, count: int = 3) -> tuple[Principal, ...]:
        """PCA of the whole stream, one a head."""
        means = self.total / self.states
        covariances = self.squares / self.states - means[:, :, None] * means[:, None]
        return tuple(principal_of(mean, covariance, count) for mean, covariance in zip(means, covariances, strict=True))


def moment_sums(vectors: Float[Tensor, "batch heads time key"], mask: Bool[Tensor, "batch time"]) -> MomentSums:
    real = vectors if mask.all() else vectors * mask[:, None, :, None]
    rows = real.transpose(0, 1).flatten(1, 2)  # heads x (batch time) x key
    return MomentSums(rows.sum(1).double(), (rows.mT @ rows).double(), mask.sum())


def principal_of(mean: Float[Tensor, " key"], covariance: Float[Tensor, "key key"], count: int) -> Principal:
    variances, vectors = torch.linalg.eigh(covariance.cpu())  # in ascending order
    widest = torch.arange(len(mean)).flip(0)[:count]
    explained = variances[widest].clamp_min(0) / variances.clamp_min(0).sum()
    return Principal(mean.cpu(), signed(vectors.T[widest]), explained)


def signed(axes: Float[Tensor, "axes key"]) -> Float[Tensor, "axes key"]:
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    return axes * largest.sign()
