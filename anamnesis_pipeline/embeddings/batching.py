"""How texts are put into batches. Pure."""

from collections.abc import Sequence


def length_sorted_batches(lengths: Sequence[int], max_tokens: int, max_texts: int = 128) -> list[list[int]]:
    """Indexes of texts in batches of similar length, longest first.

    A batch is padded to its longest text, so its cost is `longest x texts`: sorting wastes no padding, and
    starting with the longest leaves small batches for the end, when workers run out of work.

    :param lengths: tokens of each text.
    :param max_tokens: bound of longest x texts in one batch; a single longer text is a batch of its own.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    for index in order:
        longest = lengths[batches[-1][0]] if batches else 0
        if not batches or len(batches[-1]) >= max_texts or longest * (len(batches[-1]) + 1) > max_tokens:
            batches.append([index])
        else:
            batches[-1].append(index)
    return batches
