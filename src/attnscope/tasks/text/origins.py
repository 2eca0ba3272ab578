"""Which reader reads this corpus, and is it the one that was meant?

It is a file, a folder, a folder of the `datasets` library, or a name that this library knows.
"""

from attnscope.tasks.text import hugging_face, places, rows
from attnscope.tasks.text.places import ChangedCorpus
from attnscope.tasks.text.rows import Row


def read(file: str, columns: tuple[str, ...], expected: str) -> list[Row]:
    if file.startswith(hugging_face.PREFIX):
        return hugging_face.rows_of(hugging_face.load(file), file)
    path = places.find(file, expected)
    return hugging_face.read_saved(path) if hugging_face.is_saved(path) else rows.read(path, columns)


def fingerprint(file: str, expected: str, known: str | None = None) -> str:
    """What changes when the content changes; where it is known already, another one is refused."""
    by_name = file.startswith(hugging_face.PREFIX)
    found = hugging_face.fingerprint(hugging_face.load(file)) if by_name else places.digest(places.find(file, expected))
    if known not in (None, found):
        raise ChangedCorpus(f"{file} has changed: its checksum is {found[:12]}…, the settings say {str(known)[:12]}…")
    return found
