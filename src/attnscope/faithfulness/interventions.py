"""Outputs of a model without some words: removed from the text, which is read again, or masked in attention.

A *decision* is the class of a classifier, or one output token of a translator with teacher forcing. A word is all of
its tokens; special tokens stay where they are. Masked words have no attention in the last layer, where the rest is
renormalised.

How words are removed depends on the model (`WordInterventions.removal`):

- *deleted*: those behind move up. The outputs of a translator are aligned with source positions, and with teacher
  forcing they stay where they were, so that every word behind the deleted one is then misaligned: where masking does
  less than deleting, this may be the reason, and not a path around attention.
- *masked*: a translator that can mask source positions in place (MasksInPlace) does not read them, and all others keep
  their positions.
- *replaced*: any other translator that shows its source embedding (EmbedsSource), such as one with a recurrent encoder,
  reads the mean embedding of the text's remaining words in their place. Recurrent states still count the step, nothing
  of a removed word is left, and no other text of the batch matters. (Positions that are added inside `source_inputs`
  are averaged, too. Token ids that are read elsewhere as well, as in a pointer network, are not replaced.)

Effects of words are those of the replacement alone. What is compared with masking has no attention on the replaced
words either, so that the two differ in what the encoder reads, and in nothing else. If effects were measured without
this attention as well, removing a word would remove all that the state at its position has of other words, and
attention that is permuted like the states would seem to point at the right ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnscope.models.adapters.readers import NO_WORD
from attnscope.models.capabilities import EmbedsSource, MasksInPlace
from attnscope.models.inference import Model, by_length, device_of, evaluating, logits_of, module_of
from attnscope.models.trace import Intervention
from attnscope.probes.counterfactual import MAX_ELEMENTS, CounterfactualAttention, is_classifier
from attnscope.probes.divergences import tvd
from attnscope.probes.heads.sentences import Sentences, SpecialTokens
from attnscope.probes.removal import MIN_WORDS, rank_by_score, renormalise
from attnscope.probes.saliency import Change, with_embeddings
from attnscope.tasks.batch import SPECIALS
from attnscope.training.objectives import HASH_LEVELS, POSITIONS, splitmix64

THIRDS, RIDGE = 3, 0.1  # independent sets of subsets; ridge penalty per subset
SHARES = (0.1, 0.3, 0.5)  # of the words, to remove

Removal = Literal["deleted", "masked", "replaced"]

# From the indices of some rows and their outputs, the values of each row.
Reduce = Callable[[Int[Tensor, " block"], Float[Tensor, "block target outputs"]], Float[Tensor, "block _"]]


@dataclass(frozen=True)
class Effort:
    """How many random samples are used: subsets of words per third, shuffles, output tokens per text."""

    subsets: int = 32
    shuffles: int = 5
    decisions: int = 8


QUICK = Effort(subsets=16, shuffles=3, decisions=4)


@dataclass(frozen=True)
class WordInterventions:
    """A model's pass over a batch, and its outputs without some of the words."""

    reading: CounterfactualAttention
    unit: Int[Tensor, "batch source"]  # the word of each position, from 0; NO_WORD on padding and special tokens
    effort: Effort = Effort()
    seed: int = 0
    layers: tuple[int, ...] = ()  # in whose attention words are masked; empty: the last

    @classmethod
    def of(
        cls, model: Model, sentences: Sentences, effort: Effort, seed: int = 0, whole_words: bool = True
    ) -> "WordInterventions":
        """Run the model on a batch; of a text's output tokens, at most `effort.decisions` are decisions."""
        batch = sentences.batch.to(device_of(model))
        reading = CounterfactualAttention.of(model, batch)
        if not is_classifier(reading.trace) or reading.trace.rows is not None:
            outputs = batch.target_mask & ~SpecialTokens.of(model, batch).target
            keys = random_numbers(reading, outputs.shape[1], 1, seed)[:, 0].masked_fill(~outputs, 2.0)
            reading = replace(reading, tokens=outputs & (keys.argsort(1).argsort(1) < effort.decisions))
        return cls(reading, unit_of(sentences, whole_words).to(batch.source.device), effort, seed)

    @property
    def classifies(self) -> bool:
        return self.reading.classifies

    @cached_property
    def words(self) -> Bool[Tensor, "batch words"]:
        """Mask of the words of each text."""
        count = self.unit.amax(1) + 1
        return torch.arange(max(1, int(count.max())), device=count.device) < count[:, None]

    @property
    def judged(self) -> Bool[Tensor, " batch"]:
        """Mask of the texts with at least two words, so that one can be removed."""
        return self.words.sum(1) >= MIN_WORDS

    @property
    def sentence(self) -> Int[Tensor, " decisions"]:
        return self.reading.places[0]

    @property
    def step(self) -> Int[Tensor, " decisions"]:
        return self.reading.places[1]

    @cached_property
    def words_at(self) -> Bool[Tensor, "decisions words"]:
        """The words of the text of each decision."""
        return self.words[self.sentence]

    @cached_property
    def is_word(self) -> Bool[Tensor, "decisions source"]:
        """The positions that hold words, for each decision."""
        return self.unit[self.sentence] != NO_WORD

    def by_word(self, values: Float[Tensor, "decisions source"]) -> Float[Tensor, "decisions words"]:
        """Return the sum over the tokens of each word."""
        unit = self.unit[self.sentence].clamp(min=0)
        return values.new_zeros(self.words_at.shape).scatter_add(1, unit, values.masked_fill(~self.is_word, 0))

    @cached_property
    def attention(self) -> Float[Tensor, "decisions words"]:
        """The attention shown: of the last layer, the mean over heads, summed over the tokens of a word."""
        return self.by_word(self.reading.own.mean(1))

    # Outputs

    @property
    def max_rows(self) -> int:
        """The largest number of texts in one pass."""
        return max(1, MAX_ELEMENTS // self.whole[0].numel())

    def outputs(self, logits: Float[Tensor, "rows target words"]) -> Float[Tensor, "rows target outputs"]:
        return logits[..., len(SPECIALS) if self.classifies else 0 :].softmax(-1)

    @cached_property
    def whole(self) -> Float[Tensor, "batch target outputs"]:
        """The outputs for the whole texts, at every step."""
        return self.outputs(self.reading.trace.logits)

    @cached_property
    def own(self) -> Float[Tensor, "decisions outputs"]:
        return self.whole[self.sentence, self.step]

    def keep_mask(self, rows: Int[Tensor, " rows"], removed: Bool[Tensor, "rows words"]) -> Bool[Tensor, "rows source"]:
        """Return the positions of these texts that are left without some words."""
        unit = self.unit[rows]
        return self.reading.batch.source_mask[rows] & ~(removed.gather(1, unit.clamp(min=0)) & (unit != NO_WORD))

    @property
    def translates(self) -> bool:
        """Whether outputs are aligned with source positions: not of a classifier, nor of a language model."""
        return not self.classifies and self.reading.trace.rows is None

    @property
    def removal(self) -> Removal:
        """How words are removed from the text."""
        model = module_of(self.reading.model)
        if self.translates and isinstance(model, MasksInPlace):
            return "masked"
        return "replaced" if self.translates and isinstance(model, EmbedsSource) else "deleted"

    def remove(
        self, rows: Int[Tensor, " rows"], removed: Bool[Tensor, "rows words"], reduce: Reduce, attended: bool = True
    ) -> Float[Tensor, "rows _"]:
        """Return `reduce` of the outputs for texts without some words; texts of similar length are batched together.

        Args:
            rows: The texts.
            removed: The words that are removed.
            reduce: A function of the indices of some rows and their outputs.
            attended: Whether positions of replaced words may be attended to; deleted and masked ones never are.
        """
        model, keep = self.reading.model, self.keep_mask(rows, removed)
        lengths = (keep if self.removal == "deleted" else self.reading.batch.source_mask[rows]).sum(1)
        blocks = [block for part in by_length(model, lengths) for block in part.split(self.max_rows)]
        with evaluating(model):
            logits = ((i, self.logits_without(rows[i], keep[i], attended)) for i in blocks)
            values = torch.cat([reduce(i, self.outputs(rest)) for i, rest in logits])
        return torch.empty_like(values).index_copy_(0, torch.cat(blocks), values)

    def logits_without(
        self, rows: Int[Tensor, " rows"], keep: Bool[Tensor, "rows source"], attended: bool
    ) -> Float[Tensor, "rows target words"]:
        """Return the logits for some texts with only the positions in `keep`."""
        model, batch = self.reading.model, self.reading.batch
        if self.removal != "replaced":
            return logits_of(model, batch.keep(rows, keep, self.removal == "masked"))
        texts, words = batch.keep(rows, batch.source_mask[rows]), self.unit[rows] != NO_WORD
        with with_embeddings(cast(EmbedsSource, model), texts, replacing(keep, words)):
            return logits_of(model, texts) if attended else model(texts, attention=masking(keep, words)).logits

    @torch.no_grad()
    def mask(self, removed: Bool[Tensor, "decisions words"]) -> Float[Tensor, "decisions outputs"]:
        """Return the outputs of decisions with some words masked in attention, in a translator at every step."""
        reading, keep = self.reading, self.keep_mask(self.sentence, removed)
        if reading.exact and not self.layers:
            return reading.probabilities(renormalise(reading.own, keep[None], self.is_word))[0].to(self.own)
        outputs = []
        for i in torch.arange(len(keep), device=keep.device).split(self.max_rows):
            rows = self.sentence[i]
            batch = reading.batch.keep(rows, reading.batch.source_mask[rows])
            change = masking(keep[i], self.is_word[i])
            with evaluating(reading.model):
                logits = reading.model(batch, attention=dict.fromkeys(self.layers, change) or change).logits
            outputs.append(self.outputs(logits)[torch.arange(len(i), device=i.device), self.step[i]])
        return torch.cat(outputs)

    # Output changes (TVD)

    @cached_property
    def leave_one_out(self) -> Float[Tensor, "decisions words"]:
        """The output change without each word; 0 where a text would have no word left."""
        pairs = (self.words & self.judged[:, None]).nonzero()
        changes = self.whole.new_zeros(*self.words.shape, self.whole.shape[1])  # batch x words x target
        if len(pairs):
            rows, word = pairs.unbind(1)
            removed = word[:, None] == torch.arange(self.words.shape[1], device=word.device)
            changes[rows, word] = self.remove(rows, removed, lambda i, outputs: tvd(outputs, self.whole[rows[i]]))
        return changes[self.sentence, :, self.step]

    def without_top(
        self, score: Float[Tensor, "decisions words"], masked: bool = False
    ) -> Float[Tensor, "decisions shares 2"]:
        """Return the output change without the top words, for each of SHARES, and its difference from a masked one.

        Args:
            score: Ranks the words; ties in random order.
            masked: Whether the second value is the TVD between masking and removing the words; else as the first.
        """
        count, random = self.words_at.sum(1), random_numbers(self.reading, self.words.shape[1], 1, self.seed - 1)
        ranks = rank_by_score(score.double(), self.words_at, random[self.sentence, 0])
        changes = []
        for share in SHARES:
            num_removed = (share * count - 1e-6).ceil().clamp(min=1).minimum(count - 1)
            removed = self.words_at & (ranks < num_removed[:, None])
            both = torch.stack([self.own, self.mask(removed) if masked else self.own], 1)

            def distances(i: Tensor, outputs: Tensor, both: Tensor = both) -> Tensor:
                return tvd(both[i], outputs[torch.arange(len(i), device=i.device), self.step[i]][:, None])

            changes.append(self.remove(self.sentence, removed, distances, attended=False))
        return torch.stack(changes, 1)

    @cached_property
    def without_influential(self) -> Float[Tensor, "decisions shares 2"]:
        """The same without the most influential words, masked as well: by leave-one-out or by subsets.

        Leave-one-out misses redundant words, subsets are noisy for long texts: the larger change of the output counts.
        """
        scores = self.leave_one_out, self.subset_effects.mean(0).abs()
        both = torch.stack([self.without_top(score, masked=True) for score in scores])
        return both[both[..., 0].sum(2).argmax(0), torch.arange(both.shape[1], device=both.device)]

    @cached_property
    def subset_effects(self) -> Float[Tensor, "thirds decisions words"]:
        """The effect of each word on the probability of the decision, from independent random subsets of the words."""
        parts = [self.ridge_effects(self.seed * THIRDS + i) for i in range(THIRDS)]
        return torch.stack([part[self.sentence, :, self.step] for part in parts])

    def ridge_effects(self, seed: int) -> Float[Tensor, "batch words target"]:
        words, subsets = self.words, self.effort.subsets
        numbers = random_numbers(self.reading, words.shape[1], subsets, seed).masked_fill(~words[:, None], -1.0)
        keep = numbers >= 0.5
        keep |= ~keep.any(-1, keepdim=True) & (numbers == numbers.amax(-1, keepdim=True))  # at least one word
        rows = torch.arange(len(words), device=words.device).repeat_interleave(subsets)
        predicted = self.whole.argmax(-1)

        def probability(i: Tensor, outputs: Tensor) -> Tensor:
            return outputs.gather(2, predicted[rows[i]][..., None])[..., 0]

        after = self.remove(rows, words[rows] & ~keep.flatten(0, 1), probability).unflatten(0, keep.shape[:2]).double()
        design = (keep & words[:, None]).double()  # batch x subsets x words
        design = design - design.mean(1, keepdim=True)
        kernel = design @ design.mT + RIDGE * subsets * torch.eye(subsets, dtype=torch.float64, device=words.device)
        effects: Tensor = design.mT @ torch.linalg.solve(kernel, after - after.mean(1, keepdim=True))
        return effects


def masking(keep: Bool[Tensor, "rows source"], words: Bool[Tensor, "rows source"]) -> Intervention:
    """Return an intervention that puts no attention outside of `keep`."""

    def change(weights: Float[Tensor, "rows heads target source"], mask: Tensor) -> Tensor:
        width = weights.shape[-1]
        masked = renormalise(weights.flatten(1, 2), keep[None, :, :width], words[:, :width])[0]
        return masked.view_as(weights)

    return change


def replacing(keep: Bool[Tensor, "rows source"], words: Bool[Tensor, "rows source"]) -> Change:
    """Return a change of embeddings that puts the mean of the words in `keep` in place of all others."""

    def change(embedded: Float[Tensor, "rows source input"]) -> Tensor:
        width = embedded.shape[1]
        left, gone = ((words & mask)[:, :width, None] for mask in (keep, ~keep))
        mean = (embedded * left).sum(1, keepdim=True) / left.sum(1, keepdim=True).clamp(min=1)
        return torch.where(gone, mean, embedded)

    return change


def unit_of(sentences: Sentences, whole_words: bool) -> Int[Tensor, "batch source"]:
    """Return the word of each position, from 0; every token is a word if words are unknown or not whole."""
    words, source = sentences.batch.word_mask, sentences.source
    if source is None or not whole_words:
        return (words.long().cumsum(1) - 1).masked_fill(~words, NO_WORD)
    unit = source.unit.to(words.device)
    in_word = words & (unit != NO_WORD) & source.is_word.to(words.device).gather(1, unit.clamp(min=0))
    first = in_word & (unit != torch.cat([torch.full_like(unit[:, :1], NO_WORD), unit[:, :-1]], 1))
    return (first.long().cumsum(1) - 1).masked_fill(~in_word, NO_WORD)


def has_words(sentences: Sentences) -> bool:
    """Return whether most texts of several tokens have several words; not in scripts without spaces."""
    tokens = sentences.batch.word_mask.sum(1) >= MIN_WORDS
    words = unit_of(sentences, True).amax(1) + 1 >= MIN_WORDS
    return sentences.source is not None and 2 * int((tokens & words).sum()) >= int(tokens.sum())


def random_numbers(
    reading: CounterfactualAttention, width: int, samples: int, seed: int
) -> Float[Tensor, "batch samples width"]:
    """Return random numbers from 0 to 1 that follow from text, sample and seed, not from the rest of the batch."""
    source, mask = reading.batch.source, reading.batch.source_mask
    positions = torch.arange(source.shape[1], device=source.device)
    text = (splitmix64(source * POSITIONS + positions) * mask).sum(1)[:, None, None]
    streams = torch.arange(samples, device=source.device)[:, None] + (seed + 1) * POSITIONS
    cells = splitmix64(splitmix64(streams) + torch.arange(width, device=source.device))
    return (splitmix64(text + cells) & (HASH_LEVELS - 1)).double() / HASH_LEVELS
