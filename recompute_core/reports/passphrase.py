"""Where a key's passphrase comes from: a file descriptor, the environment, or the terminal.

Never from the command line, which every user of the machine can read.
"""

import getpass
import os

from ..errors import InputError
from .keys import LONGEST_PASSPHRASE_BYTES, check_new_passphrase

VARIABLE = "RECOMPUTE_KEY_PASSPHRASE"


def passphrase(descriptor: int | None = None, *, new: bool = False) -> str:
    """The passphrase, from `descriptor` if there is one, else RECOMPUTE_KEY_PASSPHRASE, else a prompt.

    A `new` one is asked for twice and must be long enough. Raises InputError in one line.
    """
    if descriptor is not None:
        given = _from_descriptor(descriptor)
    elif os.environ.get(VARIABLE):
        given = _text(os.environb[VARIABLE.encode()], VARIABLE)
    else:
        return _asked(new)
    if new:
        check_new_passphrase(given)
    return given


def _from_descriptor(descriptor: int) -> str:
    where = f"--passphrase-fd {descriptor}"
    found = b""
    try:
        while len(found) <= LONGEST_PASSPHRASE_BYTES:
            piece = os.read(descriptor, 4096)
            if not piece:
                break
            found += piece
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such descriptor"
        raise InputError(f"{where}: cannot be read: {reason}") from None
    found = found.removesuffix(b"\n").removesuffix(b"\r")
    if not found:
        raise InputError(f"{where}: is empty; expected the passphrase")
    return _text(found, where)


def _text(found: bytes, where: str) -> str:
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{where}: the passphrase is not UTF-8") from None


def _asked(new: bool) -> str:
    try:
        with open("/dev/tty", "rb+", buffering=0):
            pass
    except OSError:
        raise InputError(
            f"no passphrase, and no terminal to ask on: set {VARIABLE} or give --passphrase-fd N"
        ) from None
    try:
        given = getpass.getpass("Passphrase of the new key: " if new else "Passphrase of the key: ")
        if new:
            check_new_passphrase(given)
            if getpass.getpass("The same again: ") != given:
                raise InputError("the two passphrases differ")
    except EOFError:
        raise InputError("no passphrase was given") from None
    except UnicodeError:
        raise InputError("the passphrase is not UTF-8") from None
    return given
