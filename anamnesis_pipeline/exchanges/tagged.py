"""Text between two marks, in linear time whatever the text: logs hold what anybody wrote, also to stall a parser."""

from collections.abc import Collection


def between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the first `opening` and the next `closing`, without white space around it; None: nothing."""
    _, found, rest = text.partition(opening)
    inner, closed, _ = rest.partition(closing)
    return inner.strip() if found and closed else None


def without_at_ends(text: str, tags: Collection[str]) -> tuple[str, int]:
    """`text` without whole blocks `<tag>...</tag>` that it begins or ends with, each from the beginning of a line to
    the end of one, and how many there were. The same elsewhere in the text is quoted there, and stays.
    """
    start, end, count = 0, len(text), 0
    while (left := _behind_block(text, start, end, tags)) is not None:
        start, count = left, count + 1
    while (left := _before_block(text, start, end, tags)) is not None:
        end, count = left, count + 1
    return (text[start:end], count) if count else (text, 0)


def _behind_block(text: str, start: int, end: int, tags: Collection[str]) -> int | None:
    """Where `text[start:end]` goes on behind a block that it begins with."""
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
    """Where `text[start:end]` ended before a block that it ends with."""
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
    """`text` without what stands from each `opening` to the next `closing`, and how many such blocks there were.

    One that is not closed stays: what follows it may be anybody's words.
    """
    pieces: list[str] = []
    at = count = 0
    while (begun := text.find(opening, at)) >= 0 and (ended := text.find(closing, begun)) >= 0:
        pieces.append(text[at:begun])
        at, count = ended + len(closing), count + 1
    return ("".join((*pieces, text[at:])), count) if count else (text, 0)
