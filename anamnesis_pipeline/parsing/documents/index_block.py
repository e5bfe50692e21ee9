"""The marked block that Anamnesis writes into a `MEMORY.md`: it is made of what is stored, and so not stored again."""

INDEX_BEGINS = "<!-- anamnesis index begins: made from the topics, do not edit -->"
INDEX_ENDS = "<!-- anamnesis index ends -->"


def block_of(text: str) -> tuple[str, str] | None:
    """Return the text before the block and the text behind it; None: there is no whole block."""
    before, begins, rest = text.partition(INDEX_BEGINS)
    _, ends, after = rest.partition(INDEX_ENDS)
    if not begins or not ends:
        return None
    for end in ("\r\n", "\n"):
        if after.startswith(end):
            return before, after.removeprefix(end)
    return before, after


def without_index(text: str) -> str:
    """Return the text with empty lines in the place of the block, so that all others keep their numbers."""
    if (found := block_of(text)) is None:
        return text
    before, after = found
    return before + "\n" * text[len(before) : len(text) - len(after)].count("\n") + after
