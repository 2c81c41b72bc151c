"""What people read of a report, page and instructions: both follow from evidence and key alone."""

from .bundle import HTML
from .evidence import Found
from .html import render
from .html_supplied import render_supplied
from .instructions import NAME as VERIFY
from .instructions import instructions
from .keys import PublicKey
from .predicate import Predicate
from .statement import Decision
from .supplied import SuppliedFound


def readable(said: Decision, found: Found | SuppliedFound, key: PublicKey) -> dict[str, bytes]:
    """Both files, by name: the same in every run of this version."""
    if isinstance(said, Predicate):
        assert isinstance(found, Found)
        return {HTML: render(said, found), VERIFY: instructions(key)}
    assert isinstance(found, SuppliedFound)
    return {HTML: render_supplied(said, found), VERIFY: instructions(key, is_measured=False)}
