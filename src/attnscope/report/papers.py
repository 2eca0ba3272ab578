"""Which paper does a study measure again?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    title: str
    citation: str


PAPERS = {
    "aitken2021": Paper(
        "Understanding How Encoder-Decoder Architectures Attend",
        "Kyle Aitken, Vinay V. Ramasesh, Yuan Cao and Niru Maheswaranathan. Understanding How Encoder-Decoder "
        "Architectures Attend. Advances in Neural Information Processing Systems 34, 2021.",
    ),
    "baan2019": Paper(
        "On the Realization of Compositionality in Neural Networks",
        "Joris Baan, Jana Leible, Mitja Nikolaus, David Rau, Dennis Ulmer, Tim Baumgärtner, Dieuwke Hupkes and Elia "
        "Bruni. On the Realization of Compositionality in Neural Networks. Proceedings of BlackboxNLP, 2019.",
    ),
    "snell2021": Paper(
        "Approximating How Single Head Attention Learns",
        "Charlie Snell, Ruiqi Zhong, Dan Klein and Jacob Steinhardt. Approximating How Single Head Attention Learns. "
        "arXiv:2103.07601, 2021.",
    ),
    "tutek2020": Paper(
        "Staying True to Your Word: (How) Can Attention Become Explanation?",
        "Martin Tutek and Jan Šnajder. Staying True to Your Word: (How) Can Attention Become Explanation? Proceedings "
        "of the 5th Workshop on Representation Learning for NLP, pages 131–142, 2020.",
    ),
}
