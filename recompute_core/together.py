"""What the processes of one update settle among them. Without ranks there is one, with nobody to ask.

Checks and meters ask before they go on, so that all ranks of a study take the same turn: a rank that
went on alone would wait for the others for ever. What several processes answer is in `ranks.team`.
"""

from .results import Gap


class Together:
    """One process by itself."""

    def gaps(self, own: tuple[Gap, ...]) -> tuple[Gap, ...]:
        """Every compared tensor's gap, the worst of all processes where each has that tensor."""
        return own

    def names(self, own: tuple[str, ...]) -> tuple[str, ...]:
        """What any process names, each once."""
        return own

    def total(self, own: int) -> int:
        """The sum over all processes."""
        return own

    def slowest(self, seconds: float) -> float:
        """The longest time that any process took."""
        return seconds

    def wait(self) -> None:
        """Go on when all are here."""

    def decided(self, stopped: str | None) -> str | None:
        """Why sampling ends, or None: what the first process finds, for all of them."""
        return stopped


ALONE = Together()
