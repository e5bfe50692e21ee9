"""What a tombstone keeps of a forgotten text, so that an edited copy of it is known where it stood. Pure.

It keeps digests of runs of words, made with a secret of the store: too short to say which words they are of, and of a
long text only some.
"""

import re
from collections.abc import Set
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

# scripts without spaces: each character is a word
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")


def runs_of(text: str, secret: bytes) -> set[bytes]:
    """Digests of all runs of three words in `text`; of fewer words, of all of them."""
    words = _WORD.findall(text.casefold())
    runs = {" ".join(words[at : at + RUN_WORDS]) for at in range(max(1, len(words) - RUN_WORDS + 1))} - {""}
    return {blake2b(run.encode("utf-8", "replace"), digest_size=DIGEST_BYTES, key=secret).digest() for run in runs}


def kept_of(runs: Set[bytes], elsewhere: Set[bytes]) -> bytes:
    """What is kept of a text with these runs; nothing where too little of it is its own.

    :param elsewhere: runs of the texts around it that stay, which say nothing of where one is from.
    """
    own = sorted(runs - elsewhere)
    return b"".join(own[:MOST_RUNS]) if len(own) >= LEAST_RUNS else b""


def still_holds(runs: Set[bytes], kept: bytes) -> bool:
    """Whether a text with these runs holds a good part of the one that `kept` is of."""
    digests = [kept[at : at + DIGEST_BYTES] for at in range(0, len(kept), DIGEST_BYTES)]
    share = HELD if len(digests) > FEW_RUNS else HELD_OF_FEW
    return bool(digests) and sum(digest in runs for digest in digests) >= share * len(digests)
