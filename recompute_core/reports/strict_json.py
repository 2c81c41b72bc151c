"""JSON of which every reader makes the same, read from strangers and written for signing.

RFC 8259 leaves open what a duplicate key, a huge number or a lone surrogate means; each is refused here.
"""

import json
import math
import re
from typing import Any

from .refusal import Untrusted, quoted

DEEPEST = 64
"""Arrays and objects inside each other, at most."""
MOST_DIGITS = 40
"""Digits of one number, exponent included, at most."""

MOST_VALUES = 3_000_000
"""Values in arrays and objects, at most."""

_STRINGS = re.compile(r'"[^"]*"?')
_NOT_BRACKETS = re.compile(r"[^\[\]{}]+")
_LONG_OR_LARGE = re.compile(rf"[0-9.eE+-]{{{MOST_DIGITS + 1}}}|[eE][+-]?[0-9]{{3}}")
"""Any number of too many digits, and any that is beyond what a number can hold."""
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(data: bytes, *, most_bytes: int, what: str, most_values: int = MOST_VALUES) -> Any:
    """The one value that these bytes are, as Python's own types; `what` names them in a refusal.

    Raises Untrusted: too-large, not-utf8, too-deep, duplicate-key, not-a-number, number-too-long,
    lone-surrogate, not-json.
    """
    if len(data) > most_bytes:
        raise Untrusted("too-large", f"{what}: {len(data)} bytes; at most {most_bytes} are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Untrusted("not-utf8", f"{what}: not UTF-8 at byte {error.start}") from None
    outside = _STRINGS.sub("", text.replace("\\\\", "").replace('\\"', ""))
    if sum(map(outside.count, ",[{")) > most_values:
        raise Untrusted("too-large", f"{what}: more than {most_values} values")
    if _is_too_deep(outside):
        raise Untrusted("too-deep", f"{what}: more than {DEEPEST} arrays and objects inside each other")

    def integer(digits: str) -> int:
        _check_length(digits, what)
        return int(digits)

    def real(digits: str) -> float:
        _check_length(digits, what)
        value = float(digits)
        if not math.isfinite(value):
            raise Untrusted("not-a-number", f"{what}: {digits} is beyond what a number can hold")
        return value

    def no_number(name: str) -> Any:
        raise Untrusted("not-a-number", f"{what}: {name} is no JSON")

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise Untrusted("duplicate-key", f"{what}: the key {quoted(key)} stands twice")
            found[key] = value
        return found

    numbers: dict[str, Any] = {}
    if _LONG_OR_LARGE.search(outside):  # else each is as short and small as it may be
        numbers = {"parse_int": integer, "parse_float": real}
    try:
        value = json.loads(text, object_pairs_hook=mapping, parse_constant=no_number, **numbers)
    except json.JSONDecodeError as error:
        raise Untrusted(
            "not-json", f"{what}: not JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        ) from None
    if _ESCAPED_SURROGATE.search(text) and _has_lone_surrogate(value):
        raise Untrusted("lone-surrogate", f"{what}: half of a surrogate pair, which is no character")
    return value


def canonical(value: Any) -> bytes:
    """The one way we write a value: keys sorted by code point, no spaces, UTF-8.

    Raises ValueError on NaN, an infinity or a lone surrogate, TypeError on what is no JSON.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def _check_length(digits: str, what: str) -> None:
    if len(digits) > MOST_DIGITS and sum(letter.isdigit() for letter in digits) > MOST_DIGITS:
        raise Untrusted("number-too-long", f"{what}: a number of more than {MOST_DIGITS} digits")


def _is_too_deep(outside: str) -> bool:
    """Told from the brackets outside strings before anything is parsed, so that no parser recurses far.

    Up to the first place that is no JSON, if there is one, this sees just the brackets a parser sees.
    """
    depth = 0
    for bracket in _NOT_BRACKETS.sub("", outside):
        depth += 1 if bracket in "[{" else -1
        if depth > DEEPEST:
            return True
    return False


def _has_lone_surrogate(value: Any) -> bool:
    try:
        canonical(value)
    except UnicodeEncodeError:
        return True
    return False
