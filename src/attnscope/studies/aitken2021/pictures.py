"""The pictures that several findings share: paths of temporal components, clouds of words, attention matrices."""

from typing import TYPE_CHECKING, Any

import numpy as np

from attnscope import plots
from attnscope.models import Trace
from attnscope.probes.decomposition import Term, attention_from_terms, temporal_paths, terms
from attnscope.probes.decomposition.trajectories import centres, input_plane
from attnscope.studies.aitken2021.look import Look
from attnscope.tasks import SPECIALS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 400  # of a cloud that go into a picture


def paths(seen: Look) -> dict[str, Any]:
    """Temporal components of both sides in their common plane, and the attention that they give alone."""
    picture: dict[str, Any] = {"paths": temporal_paths(seen.encoder, seen.decoder)}
    if seen.attends:
        picture["temporal attention"] = seen.walks.attention
    return picture


def draw_paths(data: dict[str, Any], ax: "Axes", title: str) -> None:
    plots.trajectories({name: np.array(path) for name, path in data["paths"].items()}, ax=ax)
    ax.set_title(title)


def cloud(seen: Look) -> dict[str, Any]:
    """Input-delta vectors by word, input components, and the readout vectors that meet them."""
    plane = input_plane(seen.encoder)
    points = seen.measured.encoder.cloud
    readout = seen.model.context_readout.detach()[len(SPECIALS) :]
    arrows = plane.project(readout.double().cpu(), centred=False)
    arrows = arrows / arrows.norm(dim=1).max() * plane.project(points.vectors[:, 0].double().cpu()).norm(dim=1).max()
    return {
        "points": plane.project(points.vectors[:POINTS, 0].double().cpu()),
        "labels": [seen.source_vocabulary[word] for word in points.words[:POINTS].tolist()],
        "centres": centres(seen.encoder, plane, seen.source_vocabulary),
        "arrows": dict(zip(seen.target_vocabulary[len(SPECIALS) :], arrows.tolist(), strict=True)),
    }


def draw_cloud(data: dict[str, Any], ax: "Axes", title: str) -> None:
    plots.clouds(
        np.array(data["points"]),
        data["labels"],
        {word: np.array(xy) for word, xy in data["centres"].items()},
        {word: np.array(xy) for word, xy in data["arrows"].items()},
        ax=ax,
    )
    ax.set_title(title)


def matrix(seen: Look, trace: Trace, keep: tuple[Term, ...] | None = None) -> dict[str, Any]:
    """The attention of one sentence, or what some of the nine terms alone would give."""
    words = [seen.source_vocabulary[word] for word in trace.source[0].tolist()]
    said = [seen.target_vocabulary[word] for word in trace.target[0].tolist()]
    weights = trace.attention
    if keep is not None:
        queries, keys = seen.parts(trace)
        weights = attention_from_terms(terms(queries, keys), trace.source_mask, keep)
    return {"weights": weights[0, 0].cpu(), "source": words, "target": said}


def draw_matrix(data: dict[str, Any], ax: "Axes", title: str) -> None:
    plots.heatmap(np.array(data["weights"]), rows=data["target"], columns=data["source"], ax=ax, title=title)


def draw_temporal_attention(data: Any, ax: "Axes", title: str) -> None:
    plots.heatmap(np.array(data), ax=ax, title=title, xlabel="encoder step t", ylabel="decoder step s")
