"""Who sends wrong tokens again and again is not answered for a while, so that a token cannot be guessed quickly."""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable

_HERE = frozenset({"127.0.0.1", "::1"})

MOST_WRONG = 20
WITHIN_S = 60.0
ADDRESSES = 1_000
"""Remembered at most; of more the longest silent ones are forgotten."""

log = logging.getLogger(__name__)


class Guesses:
    """Wrong tokens of the last minute by address. This machine is never shut out: a forgotten client of it with an old
    token would shut out all others. Used from one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def is_shut_out(self, address: str) -> bool:
        """Whether an address has used up its tries; then a right token is of no use either."""
        times = self._wrong.get(address, deque())
        return len(times) == MOST_WRONG and self._clock() - times[0] < WITHIN_S

    def wrong(self, address: str) -> None:
        """One more wrong token."""
        if address in _HERE:
            return
        times = self._wrong.setdefault(address, deque(maxlen=MOST_WRONG))
        times.append(self._clock())
        self._wrong.move_to_end(address)
        if len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)
        if self.is_shut_out(address):
            log.warning("%s has sent %d wrong tokens and is not answered for a while", address, MOST_WRONG)
