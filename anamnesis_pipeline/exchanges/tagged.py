"""Text between two marks, in linear time whatever the text: logs hold what anybody wrote, also to stall a parser."""


def between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the first `opening` and the next `closing`, without white space around it; None: nothing."""
    _, found, rest = text.partition(opening)
    inner, closed, _ = rest.partition(closing)
    return inner.strip() if found and closed else None


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
