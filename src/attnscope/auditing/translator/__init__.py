"""What would the papers ask of a translator's attention? The evidence, part by part.

What is shown to people is taken to be the cross-attention of the last layer, the mean over its heads. The gold target
is heard (teacher forcing), so that every output word has one attention and one thing to say. Positions are pieces of
words where a tokenizer makes pieces; special tokens and padding are no words. Every number is a mean over the output
words of a sentence first, and then over sentences.
"""

from attnscope.auditing.translator.alone import tokens
from attnscope.auditing.translator.depending import dependence, quality
from attnscope.auditing.translator.elsewhere import adversary
from attnscope.auditing.translator.linked import plausibility
from attnscope.auditing.translator.removal import correlation, erasure
from attnscope.auditing.translator.seeds import between
from attnscope.auditing.translator.sentences import examples

__all__ = [
    "adversary", "between", "correlation", "dependence", "erasure", "examples", "plausibility", "quality", "tokens",
]  # fmt: skip
