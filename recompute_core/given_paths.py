"""The type of every path that a command is given."""

import errno
import os
from pathlib import Path
from typing import Any

import click

_NEVER = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)
"""What the system says of a path under which nothing is, and nothing can be made."""


class GivenPath(click.Path):
    """A path, refused where it is empty, as an unset variable of a shell is, or where nothing can be."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("expected a path, got nothing", param, ctx)
        try:
            os.lstat(value)
        except OSError as error:
            if error.errno in _NEVER:
                self.fail(f"{os.fsdecode(value)}: {error.strerror}", param, ctx)
        return super().convert(value, param, ctx)
