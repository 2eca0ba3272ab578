"""What do temporal components look like as paths, and words as clouds? (aitken2021 figures 2 to 4)"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnscope.probes.decomposition.clouds import Cloud
from attnscope.probes.decomposition.components import Components
from attnscope.probes.decomposition.principal import Principal, principal_axes
from attnscope.probes.drawing import Axes


def temporal_paths(encoder: Components, decoder: Components | None, head: int = 0) -> dict[str, np.ndarray]:
    """The temporal components of each side, in the plane of the first two principal axes of both together."""
    sides = {"encoder": encoder} | ({} if decoder is None else {"decoder": decoder})
    vectors = {name: side.temporal[head] for name, side in sides.items()}
    plane = principal_axes(torch.cat(list(vectors.values())), 2)
    return {name: plane.project(path).numpy() for name, path in vectors.items()}


def plot_paths(encoder: Components, decoder: Components | None = None, head: int = 0, ax: Axes | None = None) -> Axes:
    from attnscope import plots

    return plots.trajectories(temporal_paths(encoder, decoder, head), ax=ax)


def plot_cloud(
    components: Components,
    cloud: Cloud,
    readout: Mapping[str, Float[Tensor, " key"]] | None = None,
    words: Sequence[str] | None = None,
    head: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Input-delta vectors as points, input components as centres, readout vectors as arrows (figure 2b)."""
    from attnscope import plots

    plane = input_plane(components, head)
    points = plane.project(cloud.vectors[:, head]).numpy()
    labels = [named(word, words) for word in cloud.words.tolist()]
    arrows = {word: plane.project(vector, centred=False).numpy() for word, vector in (readout or {}).items()}
    return plots.clouds(points, labels, centres(components, plane, words, head), arrows, ax=ax)


def input_plane(components: Components, head: int = 0) -> Principal:
    """The first two principal axes of the input components of the words that were seen."""
    return principal_axes(components.input[head, components.word_counts > 0], 2)


def centres(
    components: Components, plane: Principal, words: Sequence[str] | None = None, head: int = 0
) -> dict[str, np.ndarray]:
    seen = (components.word_counts > 0).nonzero().flatten().tolist()
    return {named(word, words): plane.project(components.input[head, word]).numpy() for word in seen}


def named(word: int, words: Sequence[str] | None) -> str:
    return words[word] if words else str(word)
