"""Proper names in figures and reports: of corpora and models, in place of names in settings; of papers and audits."""

import re
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from attnscope.files import read_json

PROPER = {
    "20newsgroups": "20 Newsgroups", "ag_news": "AG News", "amazon": "Amazon", "cls": "[CLS]",
    "eraser_movies": "Movies (ERASER)", "escan": "eSCAN", "imdb": "IMDB", "iwslt14_de_en": "IWSLT14 de→en",
    "made up": "synthetic", "mlm": "MLM", "multi30k_de_en": "Multi30k de→en",
    "multi30k_en_de": "Multi30k en→de", "multi30k_en_fr": "Multi30k en→fr", "one_to_one": "one-to-one", "sms": "SMS",
    "sst": "SST", "tatoeba_en_de": "Tatoeba en→de", "tatoeba_en_fr": "Tatoeba en→fr", "yelp": "Yelp",
    "yelp_rationales": "Yelp rationales",
}  # fmt: skip
SYMBOL, SUPERSCRIPT = re.compile(r"([α-ω])\^(\w+)"), re.compile(r"\$\\mathregular\{(.)\^\{(\w+)\}\}\$")
NAMES = re.compile(rf"(?<![\w/.-])({'|'.join(PROPER)})(?![\w/-]|\.\w)")


def proper(text: str) -> str:
    """Return a text with the proper names of corpora and models; paths keep theirs.

    >>> proper("sst, mlm: more than ag_news"), proper("results/sst.json")
    ('SST, MLM: more than AG News', 'results/sst.json')
    """
    return NAMES.sub(lambda match: PROPER[match[1]], text)


def superscripts(text: str) -> str:
    """Return a text with superscripts for matplotlib.

    >>> superscripts("A(α, β^uf)")
    'A(α, $\\\\mathregular{β^{uf}}$)'
    """
    return text if "$" in text else SYMBOL.sub(r"$\\mathregular{\1^{\2}}$", text)


def plain(text: str) -> str:
    """Return a text of a figure without the markup of `superscripts`."""
    return SUPERSCRIPT.sub(r"\1^\2", text)


def name_properly(figure: Figure) -> Figure:
    """Replace names in all texts of a figure, typeset superscripts, and return it."""
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            names = [text.get_text() for text in axis.get_ticklabels()]
            typeset = [superscripts(proper(name)) for name in names]
            if isinstance(axis.get_major_locator(), FixedLocator) and names != typeset:
                axis.set_ticklabels(typeset)  # a tick writes its text anew whenever it is drawn
    for text in figure.findobj(Text):
        text.set_text(superscripts(proper(text.get_text())))
        if SUPERSCRIPT.search(text.get_text()):
            text.set_parse_math(True)
    return figure


# Audits --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AuditName:
    """What was audited, and on which texts."""

    model: str
    texts: str = ""


def audit_name(folder: Path, default: str | None = None) -> AuditName:
    """Return the names in the file name.json of an audit's folder; without it, `default` or the folder's own name."""
    path = folder / "name.json"
    return AuditName(**read_json(path)) if path.exists() else AuditName(default or folder.name)


# Papers --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paper:
    """A paper that a study reproduces."""

    title: str
    citation: str


def paper_of(study: str) -> Paper:
    """Return the paper of a study; of a study that is not ours, its name."""
    return PAPERS.get(study, Paper(study, ""))


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
    "transformers": Paper("Do the claims of the four papers hold in Transformers? (a study of our own)", ""),
    "tutek2020": Paper(
        "Staying True to Your Word: (How) Can Attention Become Explanation?",
        "Martin Tutek and Jan Šnajder. Staying True to Your Word: (How) Can Attention Become Explanation? Proceedings "
        "of the 5th Workshop on Representation Learning for NLP, pages 131–142, 2020.",
    ),
}
