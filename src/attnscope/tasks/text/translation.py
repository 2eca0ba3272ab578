"""What is this sentence in another language?"""

from dataclasses import dataclass

from attnscope.tasks.batch import END
from attnscope.tasks.text.coder import Coder
from attnscope.tasks.text.corpus import Marks, Pair, Prepared, plain
from attnscope.tasks.text.rows import Row
from attnscope.tasks.text.task import TextTask

UP_TO_THE_END = Marks(after=(END,))


@dataclass(frozen=True)
class Translation(TextTask):
    """Pairs of sentences, each of which ends with the end token."""

    source: str = "source"
    target: str = "target"
    skip_numeric: bool = False  # leave out pairs without a letter in the source (snell2021 A.5, News Commentary)

    def fields(self) -> tuple[str, ...]:
        return self.source, self.target

    @property
    def marks(self) -> tuple[Marks, Marks]:
        return UP_TO_THE_END, UP_TO_THE_END

    def pair(self, row: Row) -> Pair | None:
        source, target = row.text(self.source), row.text(self.target)
        if self.skip_numeric and not any(map(str.isalpha, plain(source))):
            return None
        return Pair(source, target, row)

    def cut(self, pair: Pair) -> tuple[list[str], list[str]]:
        return self.preparation.words(pair.source), self.preparation.words(pair.target)

    def coders(self, training: Prepared) -> tuple[Coder, Coder]:
        if self.vocabulary.shared:
            both = self.vocabulary.coder([*training.sources, *training.targets])
            return both, both
        return self.vocabulary.coder(training.sources), self.vocabulary.coder(training.targets)

    def references(self, split: str = "test") -> list[str]:
        """The target sentences as published, in the order of `batches`."""
        part = self.part(split)
        return [part.references[i] for i in part.order]

    def sentence(self, numbers: list[int]) -> str:
        """What these target words say, for people and for BLEU: up to the end token, without special words."""
        stop = numbers.index(END) if END in numbers else len(numbers)
        return self.corpus.target.text(numbers[:stop])
