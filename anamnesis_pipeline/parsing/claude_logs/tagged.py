"""Extract text between two marks, in linear time for any text: logs may hold text meant to stall a parser."""

from collections.abc import Collection


def between(text: str, opening: str, closing: str) -> str | None:
    """Return the text between the first `opening` and the next `closing`, stripped; None: there is none."""
    _, found, rest = text.partition(opening)
    inner, closed, _ = rest.partition(closing)
    return inner.strip() if found and closed else None


def without_at_ends(text: str, tags: Collection[str]) -> tuple[str, int]:
    """Return `text` without whole blocks `<tag>...</tag>` at its beginning or end, each on whole lines, and their
    number. Blocks elsewhere in the text are quoted there, and stay.
    """
    start, end, count = 0, len(text), 0
    while (left := _behind_block(text, start, end, tags)) is not None:
        start, count = left, count + 1
    while (left := _before_block(text, start, end, tags)) is not None:
        end, count = left, count + 1
    return (text[start:end], count) if count else (text, 0)


def _behind_block(text: str, start: int, end: int, tags: Collection[str]) -> int | None:
    """Return the position in `text[start:end]` behind a block at its beginning."""
    begun = start
    while begun < end and text[begun].isspace():
        begun += 1
    tag = next((tag for tag in tags if text.startswith(f"<{tag}>", begun, end)), None)
    ended = text.find(f"</{tag}>", begun, end) if tag else -1
    if tag is None or ended < 0:
        return None
    ended += len(f"</{tag}>")
    if ended < end and text[ended] not in "\r\n":
        return None
    while ended < end and text[ended] in "\r\n":
        ended += 1
    return ended


def _before_block(text: str, start: int, end: int, tags: Collection[str]) -> int | None:
    """Return the position in `text[start:end]` before a block at its end."""
    last = end
    while last > start and text[last - 1].isspace():
        last -= 1
    tag = next((tag for tag in tags if text.endswith(f"</{tag}>", start, last)), None)
    begun = text.rfind(f"<{tag}>", start, last) if tag else -1
    if begun < 0 or text.find(f"</{tag}>", begun, last) + len(f"</{tag}>") != last:
        return None
    if begun > start and text[begun - 1] not in "\r\n":
        return None
    while begun > start and text[begun - 1] in "\r\n":
        begun -= 1
    return begun


def without(text: str, opening: str, closing: str) -> tuple[str, int]:
    """Return `text` without the text from each `opening` to the next `closing`, and the number of such blocks.

    An unclosed one stays: any author may have written the text behind it.
    """
    pieces: list[str] = []
    at = count = 0
    while (begun := text.find(opening, at)) >= 0 and (ended := text.find(closing, begun)) >= 0:
        pieces.append(text[at:begun])
        at, count = ended + len(closing), count + 1
    return ("".join((*pieces, text[at:])), count) if count else (text, 0)
