"""What a tombstone keeps of a forgotten text, so that an edited copy of it is known where it stood. Pure.

It keeps digests of runs of words, made with a secret of the store: too short to say which words they are of, and of a
long text only some.
"""

import re
from collections.abc import Sequence, Set
from hashlib import blake2b

RUN_WORDS = 3
DIGEST_BYTES = 3
MOST_RUNS = 128
"""Runs that are kept of one text: those with the smallest digests, which are a fair sample of any text."""
LEAST_RUNS = 3
"""Of fewer runs nothing can be told."""
HELD = 0.4
"""A text that holds this share of the kept runs holds about half of what was forgotten: each edit breaks three runs."""
FEW_RUNS, HELD_OF_FEW = 12, 0.7
"""In so short a text each word tells: with another one in its middle it is a correction, and no copy."""
LITTLE_ELSE = 0.4
"""A text of which this share is what was forgotten goes as a whole; of any other only the lines that hold it."""
NEAR_WORDS = 12
"""Known runs with at most so many words between them are of one passage: what is between them was changed there."""

# scripts without spaces: each character is a word
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")


def runs_of(text: str, secret: bytes) -> set[bytes]:
    """Digests of all runs of three words in `text`; of fewer words, of all of them."""
    return set(_digests(_WORD.findall(text), secret))


def _digests(words: Sequence[str], secret: bytes) -> list[bytes]:
    """Of the run that begins with each word, but for the last two."""
    folded = [word.casefold() for word in words]
    runs = (" ".join(folded[at : at + RUN_WORDS]) for at in range(max(1, len(words) - RUN_WORDS + 1)))
    return [
        blake2b(run.encode("utf-8", "replace"), digest_size=DIGEST_BYTES, key=secret).digest() for run in runs if run
    ]


def kept_of(runs: Set[bytes], elsewhere: Set[bytes]) -> bytes:
    """What is kept of a text with these runs; nothing where too little of it is its own.

    :param elsewhere: runs of the texts around it that stay, which say nothing of where one is from.
    """
    own = sorted(runs - elsewhere)
    return b"".join(own[:MOST_RUNS]) if len(own) >= LEAST_RUNS else b""


def still_holds(runs: Set[bytes], kept: bytes) -> bool:
    """Whether a text with these runs holds a good part of the one that `kept` is of."""
    digests = _each(kept)
    share = HELD if len(digests) > FEW_RUNS else HELD_OF_FEW
    return bool(digests) and sum(digest in runs for digest in digests) >= share * len(digests)


def is_little_else(runs: Set[bytes], kept: bytes) -> bool:
    """Whether a text with these runs says hardly more than the one that `kept` is of."""
    digests = _each(kept)
    # of a long text only the smallest are kept: what is compared with them are the smallest here, too
    alike = {run for run in runs if run <= digests[-1]} if len(digests) == MOST_RUNS else runs
    return len(alike & set(digests)) >= LITTLE_ELSE * len(alike)


def ranges_held(text: str, secret: bytes, kept: bytes) -> list[tuple[int, int]]:
    """The characters [start, end) of `text` that are of the text that `kept` is of, with what was changed in them."""
    words, digests = list(_WORD.finditer(text)), _each(kept)
    known = set(digests)
    hits = [at for at, digest in enumerate(_digests([word[0] for word in words], secret)) if digest in known]
    sampled = len(digests) == MOST_RUNS
    apart = NEAR_WORDS * ((1 << 8 * DIGEST_BYTES) // (int.from_bytes(digests[-1]) + 1) if sampled else 1)
    groups: list[list[int]] = []
    for at in hits:
        if groups and at - groups[-1][-1] <= apart:
            groups[-1].append(at)
        else:
            groups.append([at])
    told = [group for group in groups if len(group) > 1] or groups  # three words may be the same by chance
    last, around = len(words) - 1, apart if sampled else 0  # its first and last words may not be among those kept
    return [
        (words[max(0, group[0] - around)].start(), words[min(last, group[-1] + RUN_WORDS - 1 + around)].end())
        for group in told
    ]


def _each(kept: bytes) -> list[bytes]:
    return [kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES)]
