"""What a worker says while ranks start, which may take longer than it may be silent. No torch."""

import time
from collections.abc import Callable

_LONGEST_S = 600.0
"""After so long a start silence is silence again: something hangs."""
_OFTEN = 4
"""Times in a study's patience that something is said though no more ranks have started."""


class Starting:
    """Hears several times a second how many ranks have started, and says so when it is time to.

    Once all have, one that is silent hangs.
    """

    def __init__(
        self,
        ranks: int,
        silence_s: float,
        say: Callable[[int], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks, self._every_s, self._say, self._now = ranks, silence_s / _OFTEN, say, now
        self._began = self._said_at = now()
        self._started: int | None = None

    def heard(self, started: int) -> None:
        """So many have started by now."""
        now = self._now()
        is_due = now - self._said_at >= self._every_s and now - self._began < _LONGEST_S
        if started != self._started or (is_due and started < self._ranks):
            self._started, self._said_at = started, now
            self._say(started)
