"""Language models: which tokens, words, sentences and named parts of a prompt does an answer rest on?

The same tests as of words (see `assessment`), with other units: tokens, sentences, or the parts of a prompt that the
data name, such as retrieved passages. All tokens of a unit are deleted, masked and summed together.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor

from attnscope.faithfulness.assessment import Assessment, assess_sentences
from attnscope.faithfulness.criteria import AGREEMENT, ROUTE
from attnscope.faithfulness.evidence import head_columns
from attnscope.faithfulness.interventions import unit_of
from attnscope.faithfulness.records import Part, Row, Test
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.models.adapters.readers import NO_WORD, Words
from attnscope.models.capabilities import PredictsNextToken
from attnscope.probes.heads.sentences import Sentences
from attnscope.probes.language import head_statistics
from attnscope.probes.positions import position_shares

Units = Callable[[Sentences], Int[Tensor, "batch source"]]  # the unit of each position, from 0; NO_WORD for none
ENDS = (".", "!", "?", "…", ":", "\n")


def units(subject: Subject, sample: Sample) -> Part:
    """Return route and agreement by token, word, sentence and named part."""
    kinds: dict[str, Units] = {
        "token": lambda one: unit_of(one, False), "word": lambda one: unit_of(one, True), "sentence": sentence_units,
    }  # fmt: skip
    missing: list[str] = []
    if (parts := subject.inputs.parts) is not None:
        kinds["named part"] = part_units(parts, missing)
    table: list[Row] = []
    for name, unit in kinds.items():
        data = (Sentences(texts.batch, texts.source, texts.target) for texts in sample.texts())
        found = assess_sentences(subject.model, data, (), sample.seed, sample.quick, units=unit)
        table.append({"unit": name, **unit_row(found)})
    sentences = [
        "What a prompt's tokens, words, sentences and parts do to the answer, and whether attention shows it. Prompts "
        "of one unit only are left out."
    ]
    if missing:
        sentences.append(
            f"Named parts that do not occur in their prompt as whole words, and are left out: {len(missing)}."
        )
    return Part(sentences, table)


def unit_row(found: Assessment) -> Row:
    """Return one row of the table."""
    tests = (found[ROUTE.name], found[AGREEMENT.name])
    values = {name: value for test in tests for name, value in limits_of(test).items()}
    return {"prompts": found.texts - found.left_out, **values}


def limits_of(test: Test) -> Row:
    return {test.name: test.value, f"{test.name} from": test.low, f"{test.name} to": test.high}


def sentence_units(sentences: Sentences) -> Int[Tensor, "batch source"]:
    """Return the sentence of each position: a word that ends in a full stop or the like ends one."""
    words = unit_of(sentences, True)
    if sentences.source is None:
        return words
    return grouped(words, [sentence_numbers(row) for row in word_names(sentences.source)])


def sentence_numbers(words: Sequence[str]) -> list[int]:
    """
    >>> sentence_numbers("It rains . Who knows ? We".split())
    [0, 0, 0, 1, 1, 1, 2]
    """
    ended = [word.endswith(ENDS) for word in words]
    return [sum(ended[:i]) for i in range(len(words))]


def part_units(parts: Sequence[Sequence[str]], missing: list[str]) -> Units:
    """Return the named part of each position, for prompts that are read in their order; words of none stay.

    Args:
        parts: The parts of each prompt.
        missing: Gets the parts that their prompts do not hold.
    """
    remaining = iter(parts)

    def numbers(sentences: Sentences) -> Int[Tensor, "batch source"]:
        words = unit_of(sentences, True)
        names = [()] * len(words) if sentences.source is None else list(word_names(sentences.source))
        named = [next(remaining) for _ in names]
        found = [part_numbers(row, row_parts) for row, row_parts in zip(names, named, strict=True)]
        for row, row_parts in zip(found, named, strict=True):
            missing.extend(part for number, part in enumerate(row_parts) if number not in row)
        return grouped(words, found)

    return numbers


def part_numbers(words: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return the number of the part that each word belongs to; NO_WORD for none.

    >>> part_numbers("Given : it rains . Is it wet".split(), ["it rains .", "not there"])
    [-1, -1, 0, 0, 0, -1, -1, -1]
    """
    found = [NO_WORD] * len(words)
    for number, part in enumerate(parts):
        wanted = part.split()
        starts = [i for i in range(len(words) - len(wanted) + 1) if list(words[i : i + len(wanted)]) == wanted]
        for i in range(starts[0], starts[0] + len(wanted)) if wanted and starts else ():
            found[i] = number
    return found


def word_names(source: Words) -> Iterator[list[str]]:
    """Yield the words of each text that a position belongs to, in order."""
    for names, there in zip(source.names, source.is_word, strict=True):
        yield [name for name, is_word in zip(names, there.tolist(), strict=False) if is_word]


def grouped(words: Int[Tensor, "batch source"], numbers: Sequence[Sequence[int]]) -> Int[Tensor, "batch source"]:
    """Return the unit of each position, from the unit of each word; units that no position has are closed up."""
    found = torch.full_like(words, NO_WORD)
    for row, (of, of_words) in enumerate(zip(words.tolist(), numbers, strict=True)):
        given = [of_words[i] if NO_WORD < i < len(of_words) else NO_WORD for i in of]
        order = {number: i for i, number in enumerate(sorted(set(given) - {NO_WORD}))}
        found[row] = torch.tensor([order.get(number, NO_WORD) for number in given])
    return found


def formation(subject: Subject, sample: Sample) -> Part:
    """Return the shares of position and words in the scores of every head, and its statistics, sink and all."""
    model = cast(PredictsNextToken, subject.model)
    texts = [batch for batch in sample.batches() if batch.target.shape[1] == 1]
    statistics = head_statistics(subject.model, list(sample.batches())).table()
    table = statistics[["entropy", "entropy without sink", "first", "previous", "induction", "duplicate"]]
    sentences = [
        f"On average {table['first'].mean():.0%} of the attention rests on the first token (an attention sink). "
        f"{len(table.index.unique('layer'))} of {model.num_blocks} blocks attend."
    ]
    if texts:
        shares = position_shares(subject.model, texts, permutations=8, seed=sample.seed).table()
        table = table.assign(**{name: shares[name].to_numpy() for name in ("position", "words", "rest")})
        largest = table[["position", "words", "rest"]].idxmax(axis=1).value_counts()
        shown = ", ".join(f"{name} in {count}" for name, count in largest.items())
        sentences.append(
            f"Scores vary with position, with words, or with both (rest). The largest share: {shown} heads."
        )
    return Part(sentences, heads=head_columns(table))
