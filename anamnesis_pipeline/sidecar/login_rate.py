"""Login rate limiter: an address that sends many wrong tokens is blocked for a while."""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable

_HERE = frozenset({"127.0.0.1", "::1"})

MOST_WRONG = 20
WITHIN_S = 60.0
ADDRESSES = 1_000
"""Maximum number of addresses; the least recently active are dropped."""

log = logging.getLogger(__name__)


class Guesses:
    """Wrong tokens of the last minute by address. Loopback is never blocked: a forgotten local client with an old token
    would block all others. Used from one event loop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def is_shut_out(self, address: str) -> bool:
        """Return whether an address is blocked; then a right token is rejected too."""
        times = self._wrong.get(address, deque())
        return len(times) == MOST_WRONG and self._clock() - times[0] < WITHIN_S

    def wrong(self, address: str) -> None:
        """Record a wrong token."""
        if address in _HERE:
            return
        times = self._wrong.setdefault(address, deque(maxlen=MOST_WRONG))
        times.append(self._clock())
        self._wrong.move_to_end(address)
        if len(self._wrong) > ADDRESSES:
            self._wrong.popitem(last=False)
        if self.is_shut_out(address):
            log.warning("%s has sent %d wrong tokens and is not answered for a while", address, MOST_WRONG)
