"""Decoder-only Hugging Face models, of any family that uses the attention interface: language models and classifiers.

Every position is a query over itself and the positions before it. The target tokens of a Batch are predicted from the
last positions of the source, one each. So a Batch holds whole texts (the target is the source, one token further on),
decisions (one target token, the next one), or prompts with answers (the source is the prompt and the answer without its
last token, the target is the answer). `LanguageReader` returns all three.

The state s of a trace is the residual stream as it enters the last block, at the position that predicts; h are the
last hidden states of all positions. There is no encoder and no decoder input.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, TypeGuard, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad as extend

from attnscope.errors import require
from attnscope.models.adapters.hugging_face import OUTPUT_OPTIONS, Family, HFModel, HFOutput, HuggingFace
from attnscope.models.adapters.readers import (
    NO_TOKEN,
    SURROGATE,
    Chat,
    ClassReader,
    Encoding,
    HFEncoded,
    Sides,
    Source,
    Target,
    TextPair,
    Texts,
    TranslationReader,
    Words,
    check_pairs,
    warn_of_truncation,
)
from attnscope.models.adapters.recording import Blockwise, Call, Recorder, attention_modules, record_input, recording
from attnscope.models.attention import changes_by_layer
from attnscope.models.capabilities import Generates, GivesLogits, PredictsNextToken
from attnscope.models.inference import after_end, device_of, evaluating
from attnscope.models.trace import AttentionRows, Interventions, Trace
from attnscope.tasks.batch import END, PAD, SPECIALS, Batch, pad

OPTIONS = OUTPUT_OPTIONS | {"use_cache": False}


class Decoder(Family):
    """Where the parts of a decoder-only model are, found by a short pass of the model itself."""

    def __init__(self, model: HFModel):
        self.modules = attention_modules(model, use_cache=False)
        require(
            len(set(self.modules)) == len(self.modules),
            f"a block of {type(model).__name__} attends more than once, by a difference of two softmaxes or in a loop, "
            "so that no single matrix of weights is its attention; wrap the model in an adapter of your own "
            "(docs/own-model.md)",
        )
        names = {module: name for name, module in model.named_modules()}
        matches = [re.match(r"(.*?)\.(\d+)(?=\.)", names[module]) for module in self.modules]
        blocks = [match for match in matches if match is not None]
        require(
            len(blocks) == len(matches), f"the attention of {type(model).__name__} does not lie in a list of blocks"
        )
        self.path, last = blocks[-1][1], int(blocks[-1][2])
        self.blocks: nn.ModuleList = model.get_submodule(self.path)
        self.numbers = [int(match[2]) for match in blocks]  # of the blocks that attend: hybrids have others
        self.last = last

    def attentions(self, model: HFModel) -> list[nn.Module]:
        return self.modules

    def self_attentions(self, model: HFModel) -> list[nn.Module]:
        return self.modules

    def residual_input(self, model: HFModel) -> nn.Module:
        return self.blocks[self.last]

    def readout(self, model: HFModel, context: Tensor, state: Tensor) -> Tensor:
        """Run the last block and what follows it, by the model's own code, with this output of attention."""
        require(
            self.last == len(self.blocks) - 1,
            f"the last block of {type(model).__name__} does not attend, so that it cannot be read out from a context",
        )
        positions = state.flatten(0, -2)[:, None]  # each position is a text of one token
        values = context.flatten(0, -2)[:, None]
        embedded = positions.new_zeros(len(positions), 1, model.get_input_embeddings().embedding_dim)
        with self.last_block_alone(model, positions), recording(model, FixedContext(values)):
            logits: Tensor = self.logits(model, embedded).unflatten(0, state.shape[:-1])
            return logits.squeeze(-2)

    def logits(self, model: HFModel, embedded: Float[Tensor, "batch source input"]) -> Tensor:
        return model(inputs_embeds=embedded, **OPTIONS).logits  # type: ignore[no-any-return]

    @contextmanager
    def last_block_alone(self, model: HFModel, state: Tensor) -> Iterator[None]:
        """Let the model run its last block only, on this residual stream."""
        parent, _, name = self.path.rpartition(".")
        holder = model.get_submodule(parent)
        block = self.blocks[self.last]

        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return ((state, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": state})

        handle = block.register_forward_pre_hook(hook, with_kwargs=True)
        try:
            setattr(holder, name, nn.ModuleList([block]))
            yield
        finally:
            setattr(holder, name, self.blocks)
            handle.remove()


class ClassifyingDecoder(Decoder):
    """A decoder whose last position is classified."""

    def logits(self, model: HFModel, embedded: Float[Tensor, "batch source input"]) -> Tensor:
        return self.classify(model, model.base_model(inputs_embeds=embedded, **OPTIONS).last_hidden_state)

    def classify(self, model: HFModel, state: Tensor) -> Tensor:
        return model.score(state)  # type: ignore[no-any-return]


class FixedContext(Recorder):
    """Gives every attention layer the same output."""

    def __init__(self, context: Float[Tensor, "batch target context"]):
        super().__init__([], None)
        self.context = context

    def enter(self, module: nn.Module) -> int | None:
        return 0

    def attend(self, layer: int, call: Call, own: object) -> Tensor:
        by_head: Tensor = self.context.unflatten(-1, (call.queries.shape[1], -1))
        return by_head


def predicting_positions(batch: Batch) -> Int[Tensor, "batch target"]:
    """Return the source position that each target token is predicted from; 0 for padding."""
    places = torch.arange(1, batch.source.shape[1] + 1, device=batch.source.device)
    length = (places * batch.source_mask).amax(1)  # up to the last token
    steps = torch.arange(batch.target.shape[1], device=batch.source.device)
    rows = (length - batch.target_mask.sum(1))[:, None] + steps
    return rows.masked_fill(~batch.target_mask, 0)


class HFDecoder(GivesLogits, HuggingFace):
    """A decoder-only model. Its attention is recorded at the positions that predict the target."""

    family: Decoder

    def rows_of(self, batch: Batch) -> Int[Tensor, "batch target"]:
        rows = predicting_positions(batch)
        require(
            bool((rows >= 0).all()),
            "a target token has no source token that it could be predicted from: an answer needs a prompt",
        )
        return rows

    def recorder(self, batch: Batch, attention: Interventions | None) -> Recorder:
        changes = changes_by_layer(attention, self.depth, self.heads)
        return Recorder(self.family.modules, None, changes, self.rows_of(batch))

    def encode(self, embedded: Float[Tensor, "batch source input"], batch: Batch) -> HFOutput:
        mask = batch.source_mask.long()
        return self.model.base_model(inputs_embeds=embedded, attention_mask=mask, **OPTIONS)

    def is_causal(self) -> bool:
        """Return whether the state of a token does not depend on the tokens after it."""
        ids = torch.tensor([[3, 4, 5], [3, 4, 6]], device=device_of(self.model))
        with evaluating(self.model):
            states = self.model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids), **OPTIONS)[0]
        return bool(torch.allclose(states[0, :2], states[1, :2], rtol=1e-3, atol=1e-4))


class HFDecoderClassifier(HFDecoder):
    """A decoder-only classifier: the last token of a text is classified."""

    family: ClassifyingDecoder
    reader: ClassReader

    def __init__(self, model: HFModel, reader: ClassReader):
        super().__init__(model, reader, ClassifyingDecoder(model), heads_of(model))

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        recorder, states = self.recorder(batch, attention), list[Tensor]()
        with recording(self.model, recorder), record_input(self.family.residual_input(self.model), states):
            embedded = self.source_inputs(batch.source)
            encoder = self.encode(embedded, batch).last_hidden_state
            logits = self.family.classify(self.model, take(encoder, recorder.rows))
        return Trace.of(
            batch, embedded=embedded, encoder=encoder, decoder=take(states[0], recorder.rows),
            layers=recorder.attentions(), context=self.context_of(recorder.mixed[self.depth - 1]),
            logits=self.by_target_id(logits),
        )  # fmt: skip

    def logits(self, batch: Batch, teacher_forcing: float | None = None) -> Float[Tensor, "batch target words"]:
        with evaluating(self.model, keep_gradients=True):
            hidden = self.encode(self.source_inputs(batch.source), batch).last_hidden_state
            return self.by_target_id(self.family.classify(self.model, take(hidden, self.rows_of(batch))))

    def by_target_id(self, logits: Float[Tensor, "batch target classes"]) -> Float[Tensor, "batch target words"]:
        return self.reader.class_logits(logits)


class HFLanguageModel(PredictsNextToken, Generates, HFDecoder):
    """A causal language model."""

    reader: "LanguageReader"

    def __init__(self, model: HFModel, reader: "LanguageReader"):
        super().__init__(model, reader, Decoder(model), heads_of(model))
        self.target_ids = reader.target.to(device_of(model))  # a submodule, so that it stays on the model's device
        self.attending_blocks, self.num_blocks = tuple(self.family.numbers), len(self.family.blocks)

    def forward(
        self,
        batch: Batch,
        attention: Interventions | None = None,
        teacher_forcing: float | None = None,
        gates: bool = False,
    ) -> Trace:
        return self.record(batch, self.recorder(batch, attention))

    def record(self, batch: Batch, recorder: Recorder) -> Trace:
        """Return the trace of a pass, of the rows and layers that the recorder records."""
        states, hidden = list[Tensor](), list[Tensor]()
        with recording(self.model, recorder), ExitStack() as hooks:
            hooks.enter_context(record_input(self.family.residual_input(self.model), states))
            hooks.enter_context(rows_only(self.model.get_output_embeddings(), recorder.rows, hidden))
            embedded = self.source_inputs(batch.source)
            mask = batch.source_mask.long()
            logits = self.model(inputs_embeds=embedded, attention_mask=mask, **OPTIONS).logits
        last = recorder.mixed.get(self.depth - 1)
        return Trace.of(
            batch, embedded=embedded, encoder=hidden[0], decoder=take(states[0], recorder.rows),
            layers=recorder.attentions(), context=None if last is None else self.context_of(last),
            logits=self.by_target_id(logits), rows=recorder.rows,
        )  # fmt: skip

    def logits(self, batch: Batch, teacher_forcing: float | None = None) -> Float[Tensor, "batch target words"]:
        head = self.model.get_output_embeddings()
        with evaluating(self.model, keep_gradients=True), rows_only(head, self.rows_of(batch), []):
            embedded, mask = self.source_inputs(batch.source), batch.source_mask.long()
            return self.by_target_id(self.model(inputs_embeds=embedded, attention_mask=mask, **OPTIONS).logits)

    def logits_with(self, batch: Batch, attention: Interventions) -> Float[Tensor, "batch target words"]:
        changes = changes_by_layer(attention, self.depth, self.heads)
        with recording(self.model, Recorder(self.family.modules, None, changes, recorded_layers=())):
            return self.logits(batch)

    def observe(self, batch: Batch, observer: Callable[[AttentionRows], None], block: int = 256) -> None:
        recorder = Blockwise(self.family.modules, observer, block)
        mask = None if batch.source_mask.all() else batch.source_mask.long()
        with evaluating(self.model), recording(self.model, recorder):
            embedded = self.source_inputs(batch.source)  # with token ids, the library warns of a missing mask
            self.model.base_model(inputs_embeds=embedded, attention_mask=mask, **OPTIONS)

    def trace_texts(
        self,
        texts: Sequence[Source | Chat],
        answers: Sequence[Target] | None = None,
        attention: Interventions | None = None,
        rows: Sequence[int] | None = None,
        layers: Sequence[int] | None = None,
        generate: int = 0,
    ) -> Trace:
        require(not (generate and answers), "give answers, or generate= for the model's own, not both")
        require(generate >= 0, f"generate= is a number of tokens, not {generate}")
        if generate:
            prompts = self.reader.read(texts)
            output = self.generate(prompts.batch.source, prompts.batch.source_mask, generate)
            inputs = self.reader.append_answers(prompts, output)
        else:
            inputs = self.reader.read_whole(texts) if answers is None else self.reader.read(texts, answers)
        with evaluating(self):
            recorder = self.recorder(inputs.batch, attention)
            batch = inputs.batch if rows is None else self.keep_rows(inputs.batch, recorder, rows)
            recorder.recorded_layers = None if layers is None else self.check_layers(layers)
            trace = self.record(batch, recorder)
        if not generate and answers is None:  # the last token's target is the model's own prediction
            is_last = trace.rows == inputs.batch.source_mask.sum(1, keepdim=True) - 1
            trace = replace(trace, target=torch.where(is_last & trace.target_mask, trace.predictions, trace.target))
        warn_of_truncation(inputs.cut, len(texts), self.reader)
        return trace.with_tokens(inputs.source.tokens, self.reader.target_vocabulary)

    def keep_rows(self, batch: Batch, recorder: Recorder, rows: Sequence[int]) -> Batch:
        """Return the batch with these target tokens only, and let the recorder record them only."""
        assert recorder.rows is not None
        counts = batch.target_mask.sum(1, keepdim=True)
        requested = torch.tensor(list(rows), device=counts.device).expand(len(batch), -1)
        indices = torch.where(requested < 0, counts + requested, requested)
        shortest = int(counts.min())
        require(
            bool(((indices >= 0) & (indices < counts)).all()),
            f"rows= names a row that a text lacks; the shortest has rows 0 to {shortest - 1}, or -{shortest} to -1",
        )
        recorder.rows = recorder.rows.take_along_dim(indices, 1)
        sides = {name: getattr(batch, name).take_along_dim(indices, 1) for name in ("target", "target_mask")}
        return replace(batch, **sides)

    def check_layers(self, layers: Sequence[int]) -> list[int]:
        invalid = [layer for layer in layers if not -self.depth <= layer < self.depth]
        valid = f"layers are numbered from 0 to {self.depth - 1}"
        require(len(layers) > 0, f"layers= names no layer to record; {valid}")
        require(not invalid, f"there is no layer {invalid}; {valid}")
        return [layer % self.depth for layer in layers]

    def by_target_id(self, logits: Float[Tensor, "batch target tokens"]) -> Float[Tensor, "batch target words"]:
        return self.reader.target.reorder(logits)

    def generate(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        max_length: int,
        **options: object,
    ) -> Int[Tensor, "batch generated"]:
        """Return the continuation of each text by the library's `generate`; END and what follows it are END."""
        longest, room = int(source_mask.sum(1).max()), self.reader.max_length
        require(
            longest + max_length - 1 <= room,  # the last one is not read again
            f"a prompt of {longest} tokens and {max_length} generated ones are more than the {room} that the model can "
            "read; generate fewer, or shorten the prompt",
        )
        rows = []
        with evaluating(self.model):
            for ids, mask in zip(source, source_mask, strict=True):  # one by one, so that no padding comes before
                prompt = ids[mask][None]
                output = self.model.generate(
                    input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=max_length,
                    pad_token_id=self.reader.padding, **options,
                )  # fmt: skip
                rows.append(self.reader.target.from_tokenizer(output[0, prompt.shape[1] :]))
        count = max(len(row) for row in rows)
        ids = torch.stack([extend(row, (0, count - len(row)), value=END) for row in rows])
        return ids.masked_fill(after_end(ids), END)


def heads_of(model: HFModel) -> int:
    return int(model.config.get_text_config().num_attention_heads)


def take(values: Float[Tensor, "batch source units"], rows: Int[Tensor, "batch target"] | None) -> Tensor:
    return values if rows is None else values.take_along_dim(rows.to(values.device)[:, :, None], 1)


@contextmanager
def rows_only(module: nn.Module, rows: Int[Tensor, "batch rows"] | None, inputs: list[Tensor]) -> Iterator[None]:
    """Run a module on these positions only, and store its full input in the list."""

    def hook(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        inputs[:] = [args[0]]
        return (take(args[0], rows), *args[1:])

    handle = module.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


# Texts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LanguageReader(TranslationReader):
    """Reads prompts, prompts with answers, chats and whole texts."""

    @cached_property
    def padding(self) -> int:
        """The id behind shorter texts; one that was added to the tokenizer alone has no embedding."""
        candidates = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, PAD)
        return int(next(i for i in candidates if i is not None and i < self.vocab_size))

    @cached_property
    def unknown_target(self) -> int:
        """The placeholder id of a target token that is to be predicted: END, if the tokenizer has one."""
        return END if int(self.target.token_ids[END]) != NO_TOKEN else len(SPECIALS)

    @cached_property
    def first_ids(self) -> list[int]:
        """The special tokens that the tokenizer puts before a text."""
        row = self.encode_prompts(["a"], ["a"])[0][0]
        return row.token_ids[: self.count_first(row)]

    def read(self, sources: Sequence[Source | Chat], targets: Sequence[Target] | None = None) -> Texts:
        """Return prompts, with their answers as the target; without answers, one token that is to be predicted.

        A space is put between a prompt and its answer if neither has one there; the answer to a chat has none.
        """
        check_pairs(sources, targets)
        if targets is None:
            rows, cut = self.encode_prompts([self.as_text(one) for one in sources], sources)
            return self.texts(rows, [[self.unknown_target]] * len(rows), cut)
        pairs = [self.join_answer(one, as_string(target)) for one, target in zip(sources, targets, strict=True)]
        rows, cut = self.encode_prompts([prompt + answer for prompt, answer in pairs], sources)
        starts = [self.answer_start(prompt, row) for (prompt, _), row in zip(pairs, rows, strict=True)]
        answers = [self.ids(row.token_ids[start:]) for row, start in zip(rows, starts, strict=True)]
        require(
            all(answers) and all(answer.strip() for _, answer in pairs),
            "an answer has no token that would be predicted; leave empty answers out",
        )
        require(
            all(
                not all(row.special[:start]) or len(row.ends) < self.max_length
                for row, start in zip(rows, starts, strict=True)
            ),
            f"an answer takes up all that the model can read, {self.max_length} tokens, so that nothing is left of "
            "its prompt",
        )
        prompts = [
            replace(row, special=[*row.special[:start], *[True] * (len(row.special) - start)]).until(-1)
            for row, start in zip(rows, starts, strict=True)
        ]  # fmt: skip
        return self.texts(prompts, answers, cut)

    def read_whole(self, sources: Sequence[Source | Chat]) -> Texts:
        """Return whole texts: each token's target is the next one; the last one's is to be predicted."""
        check_pairs(sources, None)
        rows, cut = self.encode_prompts([self.as_text(one) for one in sources], sources)
        return self.texts(rows, [[*self.ids(row.token_ids[1:]), self.unknown_target] for row in rows], cut)

    def append_answers(self, texts: Texts, answers: Int[Tensor, "batch generated"]) -> Texts:
        """Return prompts with these token ids (of a Batch) as their answers, as they were generated."""
        batch, rows, targets = texts.batch, [], []
        for i, answer in enumerate(answers.cpu()):
            answer_ids = answer[: int((answer == END).long().argmax()) + 1 if (answer == END).any() else None]
            mask = batch.source_mask[i]
            ids = self.target.to_tokenizer(answer_ids[:-1].to(self.target.token_ids.device)).tolist()
            prompt = batch.source[i][mask].tolist()
            special = [*batch.word_mask[i][mask].logical_not().tolist(), *[True] * len(ids)]
            rows.append(Encoding([*prompt, *ids], special, self.split([*prompt, *ids])))
            targets.append(answer_ids.tolist())
        return self.texts(rows, targets, texts.cut)

    def texts(self, rows: Sequence[Encoding], targets: Sequence[list[int]], cut: int) -> Texts:
        """Return rows of source tokens with target ids of a Batch."""
        source, mask = pad([np.array(row.token_ids) for row in rows], self.padding)
        special, _ = pad([np.array(row.special) for row in rows], True, bool)
        target, target_mask = pad([np.array(row) for row in targets])
        batch = Batch(source, mask, target, target_mask, source_special=special).to(device_of(self.model))
        words = self.target_words(batch.target, batch.target_mask)
        return Texts(batch, Words.of([row.text for row in rows]), words, cut)

    def encode_prompts(self, texts: Sequence[str], sources: Sequence[object]) -> tuple[list[Encoding], int]:
        """Return the texts as tokens, and how many were truncated from the left to the model's maximum length.

        Special tokens before a text, which the model always saw in training, stay. An end token that the tokenizer adds
        is removed. A chat has its own special tokens, of which the beginning of text stays.
        """
        chats = {is_chat(one) for one in sources}
        require(len(chats) == 1, "some prompts are chats and others are texts; give one kind at a time")
        is_text = chats == {False}
        rows = [self.encode_text(text, add_special_tokens=is_text) for text in texts]
        encoded = [row.until(-1) if is_text and len(row.ends) > 1 and row.special[-1] and not row.ends[-1] else row
                for row in rows]  # fmt: skip
        fitting = [row.last(self.max_length, kept=self.count_first(row)) for row in encoded]
        return fitting, sum(len(row.ends) > self.max_length for row in encoded)

    def count_first(self, row: Encoding) -> int:
        """Return how many tokens at the start were added by the tokenizer, or are the beginning of text."""
        begin = self.tokenizer.bos_token_id
        first = (
            special and (end == 0 or i == begin)
            for i, special, end in zip(row.token_ids, row.special, row.ends, strict=True)
        )
        return sum(takewhile(bool, first))

    def encode_text(self, text: str, **options: object) -> Encoding:
        """Return one text, in which words end at special tokens, as those of a chat template."""
        spaced = self.special_text.sub(lambda token: " " * len(token[0]), text)  # each character stays in its place
        encoding = self.tokenize([[(text, ())]], False, **options)
        require(bool(encoding["input_ids"][0]), "a text without any token cannot be read; leave empty texts out")
        self.check_ids(torch.tensor(encoding["input_ids"]), self.vocab_size)
        return self.encode_one([(spaced, tuple(spaced.split()))], encoding, 0)

    @cached_property
    def special_text(self) -> re.Pattern[str]:
        """Any special token, as it is written in a text."""
        tokens = self.tokenizer.convert_ids_to_tokens(sorted(self.special_ids))
        return re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or "(?!)")

    def tokenize(self, split: Sequence[Sides], target: bool, **options: object) -> HFEncoded:
        return super().tokenize(split, False, **options)  # an answer is read as a prompt is

    def as_text(self, source: Source | Chat) -> str:
        if not is_chat(source):
            return as_string(source)
        require(self.tokenizer.chat_template is not None, "this tokenizer has no chat template; give plain prompts")
        require(
            all(isinstance(message, Mapping) and {"role", "content"} <= set(message) for message in source),
            'a message of a chat needs a role and a content: {"role": "user", "content": "Hello"}',
        )
        return str(self.tokenizer.apply_chat_template(source, tokenize=False, add_generation_prompt=True))

    def written(self, token_ids: list[int]) -> str:
        """Return tokens as text; if nothing of it would be visible, such as an end or a space, as tokens."""
        text = super().written(token_ids)
        return text if text.strip() else "".join(self.tokens(token_ids))

    def join_answer(self, source: Source | Chat, answer: str) -> tuple[str, str]:
        prompt = self.as_text(source)
        glued = is_chat(source) or not prompt or prompt[-1].isspace() or answer[:1].isspace()
        return prompt, answer if glued else f" {answer}"

    def answer_start(self, prompt: str, row: Encoding) -> int:
        """Return the first token that reaches beyond the prompt."""
        return next((i for i, end in enumerate(row.ends) if end > len(prompt)), len(row.ends))

    def ids(self, token_ids: Sequence[int]) -> list[int]:
        """Return the ids in a Batch of the tokenizer's target tokens."""
        return self.target.from_tokenizer(torch.tensor(token_ids, dtype=torch.long)).tolist()


def is_chat(source: object) -> TypeGuard[Chat]:
    return isinstance(source, Sequence) and len(source) > 0 and isinstance(source[0], Mapping)


def as_string(text: Target | Source) -> str:
    require(not isinstance(text, TextPair), "a language model reads one text, not a pair; join them in a prompt")
    words = [str(text)] if isinstance(text, str | int) else text
    require(
        isinstance(words, Sequence) and all(isinstance(word, str) for word in words),
        f"a text is a string or a list of words, not {text!r:.60}",
    )
    whole = " ".join(cast(Sequence[str], words))
    require(not SURROGATE.search(whole), f"the text {whole!r:.60} has half of a character (a lone surrogate)")
    return whole
