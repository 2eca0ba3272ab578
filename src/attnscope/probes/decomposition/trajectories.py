"""What do components look like in few dimensions: time as trajectories, tokens as clouds? (aitken2021 §3, §4.1)

Principal axes (footnote 4), the trajectories of encoder and decoder over time (figures 2 and 4), the offset at which
time alone attends (figure 5b), and clouds of states without their temporal components (figures 2b, 3c, 6a).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, cat

from attnscope.display import Axes, Displayed
from attnscope.probes.accumulator import Accumulator, Sums
from attnscope.probes.decomposition.components import Components, Parts, SideVectors
from attnscope.tasks.batch import NOWHERE, Batch


@dataclass(frozen=True)
class Principal(Displayed):
    """Principal axes of a set of vectors, that of the largest variance first, and the fraction of variance of each.

    The sign of an axis has no meaning; it is chosen so that its largest entry is positive.
    """

    mean: Float[Tensor, " key"]
    axes: Float[Tensor, "axes key"]
    explained: Float[Tensor, " axes"]

    def project(self, vectors: Float[Tensor, "*points key"], centred: bool = True) -> Float[Tensor, "*points axes"]:
        """Return coordinates along the axes. A direction, such as a readout vector, is not centred."""
        shifted = vectors.to(self.mean) - self.mean if centred else vectors.to(self.mean)
        return shifted @ self.axes.T

    def table(self) -> pd.DataFrame:
        explained = pd.DataFrame({"explained": self.explained.cpu().numpy()}).rename_axis("axis")
        return explained.assign(together=explained["explained"].cumsum())

    def plot(self, ax: Axes | None = None) -> Axes:
        from attnscope import plots

        table, x = self.table(), torch.arange(1, len(self.explained) + 1).numpy()
        curves = {"explained, up to this axis": table["together"].to_numpy()}
        return plots.profiles(x, curves, ax=ax, xlabel="axis", ylabel="fraction of the variance")


def principal_axes(vectors: Float[Tensor, "points key"], count: int = 3) -> Principal:
    """Return the principal axes of a set of vectors, such as all temporal or all input components."""
    from sklearn.decomposition import PCA  # takes a second to load

    pca = PCA(min(count, *vectors.shape), svd_solver="full").fit(vectors.double().cpu().numpy())
    axes = torch.from_numpy(pca.components_)
    return Principal(torch.from_numpy(pca.mean_), orient(axes), torch.from_numpy(pca.explained_variance_ratio_))


@dataclass(frozen=True)
class MomentSums(Sums):
    """First and second moments of vectors, from which a PCA follows exactly."""

    total: Float[Tensor, "heads key"]
    squares: Float[Tensor, "heads key key"]
    states: Int[Tensor, ""]

    def principal(self, count: int = 3) -> tuple[Principal, ...]:
        """Return the principal axes of all vectors, per head."""
        means = self.total / self.states
        covariances = self.squares / self.states - means[:, :, None] * means[:, None]
        return tuple(principal_of_covariance(*moments, count) for moments in zip(means, covariances, strict=True))


def moment_sums(vectors: Float[Tensor, "batch heads time key"], mask: Bool[Tensor, "batch time"]) -> MomentSums:
    unpadded = vectors if mask.all() else vectors * mask[:, None, :, None]
    rows = unpadded.transpose(0, 1).flatten(1, 2)  # heads x (batch time) x key
    return MomentSums(rows.sum(1).double(), (rows.mT @ rows).double(), mask.sum())


def principal_of_covariance(mean: Float[Tensor, " key"], covariance: Float[Tensor, "key key"], count: int) -> Principal:
    variances, vectors = torch.linalg.eigh(covariance.cpu())  # in ascending order
    widest = torch.arange(len(mean)).flip(0)[:count]
    explained = variances[widest].clamp_min(0) / variances.clamp_min(0).sum()
    return Principal(mean.cpu(), orient(vectors.T[widest]), explained)


def orient(axes: Float[Tensor, "axes key"]) -> Float[Tensor, "axes key"]:
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    return axes * largest.sign()


@dataclass(frozen=True)
class TemporalTrajectories(Displayed):
    """The temporal components μ(t) of the encoder and μ(s) of the decoder, in the order of time."""

    encoder: Float[Tensor, "source key"]
    decoder: Float[Tensor, "target key"]
    steps: int  # decoder steps that count: means of later ones are over few sentences

    @cached_property
    def products(self) -> Float[np.ndarray, "target source"]:
        """μ(s) · μ(t)."""
        products: np.ndarray = (self.decoder @ self.encoder.T).cpu().numpy()
        return products

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
    def attention_near_diagonal(self) -> Float[np.ndarray, " steps"]:
        """The weight of the temporal attention within one position of each decoder step."""
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

    def variance_explained(self, axes: int = 3) -> float:
        """The share of the variance of all components along the first principal axes."""
        return principal_axes(torch.cat([self.encoder, self.decoder]), axes).explained.sum().item()

    def table(self) -> pd.DataFrame:
        """Return one row per decoder step that counts."""
        columns = {"peak": self.peaks, "near the diagonal": self.attention_near_diagonal}
        return pd.DataFrame(columns).rename_axis("step")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw both curves in the plane of their first two principal axes."""
        from attnscope import plots

        plane = principal_axes(torch.cat([self.encoder, self.decoder]), 2)
        curves = {"encoder": self.encoder, "decoder": self.decoder}
        return plots.trajectories({name: plane.project(curve).numpy() for name, curve in curves.items()}, ax=ax)


def temporal_trajectories(encoder: Components, decoder: Components, head: int = 0) -> TemporalTrajectories:
    """Return the trajectories; a decoder step counts if at least half of the sentences reach it."""
    counts = decoder.time_counts
    return TemporalTrajectories(encoder.temporal[head], decoder.temporal[head], int((counts >= counts.max() / 2).sum()))


MAX_OFFSET = 5  # figure 5b shows offsets from −5 to 5


@dataclass(frozen=True)
class OffsetProfile(Displayed):
    """μ(s) · μ(t) of decoder and encoder as a function of the offset t − s, and the offset that the task needs."""

    offsets: Int[Tensor, " offsets"]
    values: Float[Tensor, "heads target offsets"]  # NaN where there is no encoder step s + offset
    expected: Float[Tensor, " steps"] | None  # mean gold offset, NaN at steps without one; None without gold attention

    @property
    def largest(self) -> Float[Tensor, "heads target"]:
        """The offset of the largest value at each decoder step; NaN where no encoder step is near enough."""
        offset = self.offsets[self.values.nan_to_num(-torch.inf).argmax(-1)].double()
        return offset.masked_fill(self.values.isnan().all(-1), torch.nan)

    def table(self, head: int = 0) -> pd.DataFrame:
        """Return one row per decoder step: the value at each offset, and the largest and the expected offset."""
        table = pd.DataFrame(self.values[head].cpu().numpy(), columns=self.offsets.tolist()).rename_axis("step")
        table["largest"] = self.largest[head].cpu().numpy()
        expected = pd.Series(np.nan if self.expected is None else self.expected.cpu().numpy(), dtype=float)
        return table.assign(expected=expected.reindex(table.index))

    def plot(self, ax: Axes | None = None, head: int = 0, steps: tuple[int, ...] | None = None) -> Axes:
        """Draw the curves of some decoder steps, with a mark at the offset expected there."""
        from attnscope import plots

        table = self.table(head)
        shown = steps or tuple(sorted({0, len(table) // 4, len(table) // 2, 3 * len(table) // 4}))
        curves = {f"s = {s}": table.loc[s, self.offsets.tolist()].to_numpy(dtype=float) for s in shown}
        marks = {f"s = {s}": float(table["expected"][s]) for s in shown if np.isfinite(table["expected"][s])}
        x = self.offsets.cpu().numpy()
        return plots.profiles(x, curves, ax=ax, xlabel="offset t − s", ylabel="μ(s) · μ(t)", marks=marks or None)


def offset_profile(
    decoder: Components,
    encoder: Components,
    max_offset: int = MAX_OFFSET,
    expected: Float[Tensor, " steps"] | None = None,
) -> OffsetProfile:
    """Return μ(s) · μ(t) at offsets from −max_offset to max_offset."""
    products = decoder.temporal @ encoder.temporal.mT  # heads x target x source
    offsets = torch.arange(-max_offset, max_offset + 1, device=products.device)
    positions = torch.arange(products.shape[1], device=products.device)[:, None] + offsets  # target x offsets
    inside = (positions >= 0) & (positions < products.shape[2])
    inner = positions.clamp(0, products.shape[2] - 1).expand(len(products), -1, -1)
    return OffsetProfile(offsets, products.gather(2, inner).masked_fill(~inside, torch.nan), expected)


@dataclass(frozen=True)
class OffsetSums(Sums):
    """Gold offsets, summed over sequences."""

    total: Float[Tensor, " target"]
    steps: Int[Tensor, " target"]


class ExpectedOffset(Accumulator[OffsetSums]):
    """The mean of gold_attention(s) − s: by how much the source runs ahead of a decoder step.

    Steps without a gold position (NOWHERE) do not count.
    """

    def update(self, batch: Batch) -> None:
        if batch.gold_attention is not None:
            self.add(offset_sums(batch.gold_attention, batch.target_mask))

    def result(self) -> Float[Tensor, " target"] | None:
        """Return the mean offset; NaN at steps without a gold position, None where no batch has gold attention."""
        return None if self.sums is None else self.sums.total / self.sums.steps


def offset_sums(gold: Int[Tensor, "batch target"], target_mask: Bool[Tensor, "batch target"]) -> OffsetSums:
    has_gold = target_mask & (gold != NOWHERE)
    offsets = gold - torch.arange(gold.shape[1], device=gold.device)
    return OffsetSums((offsets * has_gold).sum(0).double(), has_gold.sum(0))


MAX_POINTS = 1000  # vectors of a figure


@dataclass(frozen=True)
class Cloud(Sums):
    """The input-delta vectors of the first states of the data, each with its token; `max_points` at most."""

    vectors: Float[Tensor, "points heads key"]
    words: Int[Tensor, " points"]
    max_points: int = MAX_POINTS

    @property
    def room(self) -> int:
        return self.max_points - len(self.words)

    def __add__(self, later: "Cloud") -> "Cloud":
        if not self.room:
            return self
        vectors, words = later.vectors[: self.room].to(self.vectors), later.words[: self.room].to(self.words)
        return Cloud(cat([self.vectors, vectors]), cat([self.words, words]), self.max_points)


def cloud(side: SideVectors, parts: Parts, max_points: int = MAX_POINTS) -> Cloud:
    """Return the first states. Each sequence has at least one, so that `max_points` sequences are enough."""
    first = slice(max_points)
    mask = side.mask[first]
    vectors = parts.input_delta[first].transpose(1, 2)  # batch x time x heads x key
    return Cloud(vectors[mask][first], side.words[first][mask][first], max_points)


def temporal_paths(encoder: Components, decoder: Components | None, head: int = 0) -> dict[str, np.ndarray]:
    """Return the temporal components of each side, in the plane of the first two principal axes of both together."""
    sides = {"encoder": encoder} | ({} if decoder is None else {"decoder": decoder})
    vectors = {name: side.temporal[head] for name, side in sides.items()}
    plane = principal_axes(torch.cat(list(vectors.values())), 2)
    return {name: plane.project(path).numpy() for name, path in vectors.items()}


def plot_paths(encoder: Components, decoder: Components | None = None, head: int = 0, ax: Axes | None = None) -> Axes:
    """Draw the temporal components of both sides (figure 2e)."""
    from attnscope import plots

    return plots.trajectories(temporal_paths(encoder, decoder, head), ax=ax)


def input_plane(components: Components, head: int = 0) -> Principal:
    """Return the first two principal axes of the input components of tokens that occur in the fit."""
    return principal_axes(components.input[head, components.word_counts > 0], 2)


def centres(
    components: Components, plane: Principal, words: Sequence[str] | None = None, head: int = 0
) -> dict[str, np.ndarray]:
    """Return the projected input component of each token that occurs in the fit."""
    occurring = (components.word_counts > 0).nonzero().flatten().tolist()
    return {word_name(word, words): plane.project(components.input[head, word]).numpy() for word in occurring}


def word_name(word: int, words: Sequence[str] | None) -> str:
    return words[word] if words else str(word)
