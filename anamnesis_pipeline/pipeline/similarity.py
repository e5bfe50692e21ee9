"""Similarity digests in tombstones: an edited copy of a forgotten text is recognized where the text was. Pure.

A tombstone keeps keyed digests of word runs (the key is a secret of the store). They are too short to reveal the words,
and of a long text only a sample is kept.
"""

import re
from collections.abc import Sequence, Set
from hashlib import blake2b

RUN_WORDS = 3
DIGEST_BYTES = 3
MAX_RUNS = 128
"""Max digests kept of one text: the smallest, which are a fair sample of any text."""
MIN_RUNS = 3
"""Fewer runs identify nothing."""
HELD = 0.4
"""A text with this share of the kept runs holds about half of the forgotten text: each edit breaks three runs."""
FEW_RUNS, HELD_OF_FEW = 12, 0.7
"""Up to 12 runs, each word matters: one word changed in the middle makes a correction, not a copy."""
LITTLE_ELSE = 0.4
"""A text of which this share was forgotten is removed whole; from any other, only the matching lines."""
NEAR_WORDS = 12
"""Known runs at most this many words apart belong to one passage; the words between were edited."""

# scripts without spaces: each character is a word
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")


def runs_of(text: str, secret: bytes) -> set[bytes]:
    """Return digests of all runs of three words in `text`, or of the whole text if it has fewer."""
    return set(_digests(_WORD.findall(text), secret))


def _digests(words: Sequence[str], secret: bytes) -> list[bytes]:
    """Return the digest of the run starting at each word but the last two."""
    folded = [word.casefold() for word in words]
    runs = (" ".join(folded[at : at + RUN_WORDS]) for at in range(max(1, len(words) - RUN_WORDS + 1)))
    return [
        blake2b(run.encode("utf-8", "replace"), digest_size=DIGEST_BYTES, key=secret).digest() for run in runs if run
    ]


def kept_of(runs: Set[bytes], elsewhere: Set[bytes]) -> bytes:
    """Return the digests to keep of a text with these runs; empty if too few are unique to it.

    :param elsewhere: runs of the surrounding texts that stay; they do not identify the origin.
    """
    own = sorted(runs - elsewhere)
    return b"".join(own[:MAX_RUNS]) if len(own) >= MIN_RUNS else b""


def still_holds(runs: Set[bytes], kept: bytes) -> bool:
    """Return whether a text with these runs holds a good part of the text behind `kept`."""
    digests = _each(kept)
    share = HELD if len(digests) > FEW_RUNS else HELD_OF_FEW
    return bool(digests) and sum(digest in runs for digest in digests) >= share * len(digests)


def is_little_else(runs: Set[bytes], kept: bytes) -> bool:
    """Return whether a text with these runs says little more than the text behind `kept`."""
    digests = _each(kept)
    # only the smallest digests of a long text are kept: compare with the smallest here
    alike = {run for run in runs if run <= digests[-1]} if len(digests) == MAX_RUNS else runs
    return len(alike & set(digests)) >= LITTLE_ELSE * len(alike)


def ranges_held(text: str, secret: bytes, kept: bytes) -> list[tuple[int, int]]:
    """Return the character ranges [start, end) of `text` that match the text behind `kept`, with edits inside them."""
    words, digests = list(_WORD.finditer(text)), _each(kept)
    known = set(digests)
    hits = [at for at, digest in enumerate(_digests([word[0] for word in words], secret)) if digest in known]
    sampled = len(digests) == MAX_RUNS
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
