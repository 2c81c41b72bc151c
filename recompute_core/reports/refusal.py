"""Why something that came from outside is not believed."""


class Untrusted(Exception):
    """A report is refused. `code` is a fixed slug for machines, `str()` a sentence for people.

    The sentence may quote what was refused, cut short and in printable ASCII only.
    """

    exit_code = 1

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def quoted(text: str) -> str:
    """Foreign text for a sentence: short, and nothing in it moves a cursor or turns a line around."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
