"""Which reader reads this corpus? A file, a folder, a folder of the `datasets` library, or a name that it knows."""

from attnscope.tasks.text import hugging_face, places, rows
from attnscope.tasks.text.rows import Row


def read(file: str, columns: tuple[str, ...], expected: str) -> list[Row]:
    if file.startswith(hugging_face.PREFIX):
        return hugging_face.rows_of(hugging_face.load(file), file)
    path = places.find(file, expected)
    return hugging_face.read_saved(path) if hugging_face.is_saved(path) else rows.read(path, columns)


def fingerprint(file: str, expected: str) -> str:
    """What changes when the content changes."""
    if file.startswith(hugging_face.PREFIX):
        return hugging_face.fingerprint(hugging_face.load(file))
    return places.digest(places.find(file, expected))
