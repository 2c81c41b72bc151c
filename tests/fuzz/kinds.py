"""All kinds of input, by name."""

from .asked import KINDS as ASKED
from .pages import KINDS as PAGES
from .photos import KINDS as PHOTOS
from .reports import KINDS as REPORTS
from .rows import KINDS as ROWS
from .run import Kind
from .words import KINDS as WORDS

KINDS: dict[str, Kind] = {kind.name: kind for kind in (*ASKED, *REPORTS, *PHOTOS, *ROWS, *WORDS, *PAGES)}
