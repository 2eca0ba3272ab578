"""Language models: which tokens, words, sentences and named parts of a prompt does an answer rest on?

The tests of `assessment`, with other units than words: tokens, sentences, or the parts of a prompt that the data name,
such as retrieved passages. All tokens of a unit are deleted, masked and summed together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from attnscope.errors import require
from attnscope.faithfulness.assessment import Assessment, assess_sentences
from attnscope.faithfulness.criteria import AGREEMENT, ROUTE, Interval
from attnscope.faithfulness.evidence import head_columns
from attnscope.faithfulness.interventions import QUICK, Effort, WordInterventions, unit_of
from attnscope.faithfulness.records import Cell, Part, Row, Test
from attnscope.faithfulness.subject import Sample, Subject
from attnscope.models.adapters.readers import NO_WORD, Words
from attnscope.models.capabilities import PredictsNextToken
from attnscope.probes.divergences import tvd
from attnscope.probes.heads.sentences import Sentences
from attnscope.probes.language import head_statistics
from attnscope.probes.positions import position_shares

Units = Callable[[Sentences], Int[Tensor, "batch source"]]  # the unit of each position, from 0; NO_WORD for none
ENDS = (".", "!", "?", "…", ":", "\n")
REST = "other words"
MAX_NAMES = 20  # rows of the table of named parts


def units(subject: Subject, sample: Sample) -> Part:
    """Return route and agreement by token, word, sentence and named part."""
    kinds: dict[str, Units] = {
        "token": lambda texts: unit_of(texts, False), "word": lambda texts: unit_of(texts, True),
        "sentence": sentence_units,
    }  # fmt: skip
    missing: list[str] = []
    if subject.inputs.parts is not None:
        kinds["named part"] = part_units([tuple(parts.values()) for parts in subject.inputs.parts], missing)
    table: list[Row] = []
    for name, unit in kinds.items():
        data = (Sentences(texts.batch, texts.source, texts.target) for texts in sample.texts())
        assessment = assess_sentences(subject.model, data, (), sample.seed, sample.quick, units=unit)
        table.append({"unit": name, **unit_row(assessment)})
    sentences = [
        "The effect of a prompt's tokens, words, sentences and parts on the answer, and whether attention shows it. "
        "Prompts of one unit are left out."
    ]
    if missing:
        sentences.append(
            f"Named parts that do not occur in their prompt as whole words, and are left out: {len(missing)}."
        )
    return Part(sentences, table)


def unit_row(assessment: Assessment) -> Row:
    """Return one row of the table."""
    tests = (assessment[ROUTE.name], assessment[AGREEMENT.name])
    values = {name: value for test in tests for name, value in limits_of(test).items()}
    return {"prompts": assessment.texts - assessment.left_out, **values}


def limits_of(test: Test) -> Row:
    return {test.name: test.value, f"{test.name} from": test.low, f"{test.name} to": test.high}


def sentence_units(sentences: Sentences) -> Int[Tensor, "batch source"]:
    """Return the sentence of each position: a word that ends in punctuation such as a full stop ends one."""
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
    """Return the named part of each position, for prompts read in order; other words are never deleted.

    Args:
        parts: The parts of each prompt.
        missing: A list to which parts that are not in their prompt are added.
    """
    remaining = iter(parts)

    def numbers(sentences: Sentences) -> Int[Tensor, "batch source"]:
        words = unit_of(sentences, True)
        names = [()] * len(words) if sentences.source is None else list(word_names(sentences.source))
        named = [next(remaining) for _ in names]
        indices = [part_numbers(row, row_parts) for row, row_parts in zip(names, named, strict=True)]
        for row, row_parts in zip(indices, named, strict=True):
            missing.extend(part for i, part in enumerate(row_parts) if i not in row)
        return grouped(words, indices)

    return numbers


def part_numbers(words: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return the number of the part that each word belongs to; NO_WORD for none.

    >>> part_numbers("Given : it rains . Is it wet".split(), ["it rains .", "not there"])
    [-1, -1, 0, 0, 0, -1, -1, -1]
    """
    numbers = [NO_WORD] * len(words)
    for number, part in enumerate(parts):
        part_words = part.split()
        length = len(part_words)
        starts = [i for i in range(len(words) - length + 1) if list(words[i : i + length]) == part_words]
        if starts:
            numbers[starts[0] : starts[0] + length] = [number] * length
    return numbers


def word_names(source: Words) -> Iterator[list[str]]:
    """Yield the words of each text that a position belongs to, in order."""
    for names, there in zip(source.names, source.is_word, strict=True):
        yield [name for name, is_word in zip(names, there.tolist(), strict=False) if is_word]


def grouped(words: Int[Tensor, "batch source"], numbers: Sequence[Sequence[int]]) -> Int[Tensor, "batch source"]:
    """Return the unit of each position, from the unit of each word; units are renumbered without gaps."""
    units = torch.full_like(words, NO_WORD)
    for row, (word_ids, of_words) in enumerate(zip(words.tolist(), numbers, strict=True)):
        unit_ids = [of_words[i] if NO_WORD < i < len(of_words) else NO_WORD for i in word_ids]
        order = {unit: i for i, unit in enumerate(sorted(set(unit_ids) - {NO_WORD}))}
        units[row] = torch.tensor([order.get(unit, NO_WORD) for unit in unit_ids])
    return units


def named_parts(subject: Subject, sample: Sample) -> Part:
    """Return, by name of a part, the attention to it and the output changes without it and with it masked."""
    remaining, effort = iter(subject.inputs.parts or ()), QUICK if sample.quick else Effort()
    frames, prompts = list[pd.DataFrame](), 0
    for texts in sample.texts():
        read = Sentences(texts.batch, texts.source, texts.target)
        named = [next(remaining) for _ in range(len(read))]
        frame = part_effects(WordInterventions.of(subject.model, read, effort, sample.seed), read, named)
        frames.append(frame.assign(prompt=frame["prompt"] + prompts))
        prompts += len(read)
    by_prompt = pd.concat(frames).groupby(["part", "prompt"], sort=False).mean()
    counts = by_prompt.groupby("part", sort=False).size()
    names = counts.drop(REST, errors="ignore").sort_values(ascending=False, kind="stable").index
    require(len(names) > 0, "no named part occurs in its prompt as whole words")
    sentences = [
        "Each part's share of the tokens, and of the last layer's attention, averaged over heads, where the answer "
        "is predicted (special tokens get the remainder); and the change of the output (TVD) if it is deleted from the "
        "prompt, or only masked in this attention. All are means over prompts, with 95 % intervals."
    ]
    if len(names) > MAX_NAMES:
        sentences.append(f"Of {len(names)} names, the {MAX_NAMES} that occur in most prompts are shown.")
    shown = (*names[:MAX_NAMES], *counts.index.intersection([REST]))
    return Part(sentences, [{"part": name, **part_row(by_prompt.loc[name])} for name in shown])


def part_row(prompts: pd.DataFrame) -> Row:
    """Return one row of the table, from one row per prompt."""
    means = prompts.mean()
    row: dict[str, Cell] = {"prompts": len(prompts), "tokens": means["tokens"]}
    for name in ("attention", "deleted"):
        interval = Interval.of(prompts[name].to_numpy(), (0.0, 1.0))
        row |= {name: interval.value, f"{name} from": interval.low, f"{name} to": interval.high}
    return row | {"masked": means["masked"]}


def part_effects(reading: WordInterventions, sentences: Sentences, named: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    """Return one row per decision and part; all words outside of the named parts are one more part."""
    assert sentences.source is not None
    numbers = [
        [len(parts) if i == NO_WORD else i for i in part_numbers(words, tuple(parts.values()))]
        for words, parts in zip(word_names(sentences.source), named, strict=True)
    ]
    names = [[(*parts, REST)[i] for i in sorted(set(row))] for row, parts in zip(numbers, named, strict=True)]
    units = replace(reading, unit=grouped(reading.unit.cpu(), numbers).to(reading.unit))
    tokens = units.by_word(torch.ones_like(units.reading.own[:, 0]))
    single = torch.eye(units.words.shape[1], dtype=torch.bool, device=tokens.device)
    columns = {
        "tokens": tokens / tokens.sum(1, keepdim=True), "attention": units.attention,
        "deleted": units.leave_one_out,
        "masked": torch.stack([tvd(units.mask(one.expand_as(tokens)), units.own) for one in single], 1),
    }  # fmt: skip
    rows = [
        {"prompt": text, "part": name} | {column: float(values[i, unit]) for column, values in columns.items()}
        for i, text in enumerate(units.sentence.tolist()) if bool(units.judged[text])
        for unit, name in enumerate(names[text])
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["prompt", "part", *columns])


def formation(subject: Subject, sample: Sample) -> Part:
    """Return the shares of position and words in the scores of every head, and its statistics."""
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
