"""Why something that came from outside is not believed."""

from ..errors import Said


class Untrusted(Said):
    """A report is refused. `code` is a fixed slug for machines, `str()` a sentence for people.

    The sentence may quote what was refused, cut short.
    """

    exit_code = 1

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


CANNOT_BE = (ValueError, LookupError, ArithmeticError, TypeError, AttributeError, AssertionError)
"""What records lead to that are each well formed, and cannot all be of one study."""


def contradiction(error: Exception) -> Untrusted:
    """Such an error as a refusal."""
    first = str(error).partition("\n")[0]
    return Untrusted("contradiction", f"the evidence contradicts itself: {quoted(first)}")


def quoted(text: str) -> str:
    """Foreign text for a sentence: short, and nothing in it moves a cursor or turns a line around."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
