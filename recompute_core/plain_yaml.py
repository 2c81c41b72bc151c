"""YAML from outside: plain values alone, the same for every reader, and no more than is written.

A few lines of YAML can stand for billions of values: names that repeat what was said before (`*name`,
`<<`), each repeated in turn. So a document is weighed as it would be if written out, before any value of
it is made, and no number in it is long: one in base 60 (`1:30:00`) takes the square of its length. A key
that stands twice, however it is spelled, is refused, as readers differ in which of the two they take.
"""

from typing import Any

import yaml

from .errors import InputError

MOST_LETTERS = 1_000_000
"""Letters of a document."""
_MOST_WRITTEN_OUT = 4 * MOST_LETTERS
"""Values, and letters in them, once all that is repeated is written out; more than a document without
repetitions can hold."""
_LONGEST_NUMBER = 400
"""Letters of a number; the largest that a computer computes with has 309 digits."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_NAMES = ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")
"""Keys that stand for no value of their own: `<<` and `=`."""


def parse_yaml(text: str, where: str) -> Any:
    """The one value of a document; raises InputError in one line that begins with `where`."""
    if len(text) > MOST_LETTERS:
        raise InputError(f"{where}: more than {MOST_LETTERS} letters")
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _weigh(loader, node, {}, where)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except RecursionError:
        raise InputError(f"{where}: nested too deeply") from None
    except InputError:
        raise
    # What tags raise on text that is not theirs: !!int, !!timestamp, !!bool.
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{where}: not YAML: {' '.join(str(error).split())[:200]}") from None


def _weigh(loader: yaml.SafeLoader, node: yaml.Node, known: dict[int, int | None], where: str) -> int:
    """What a node takes when it is written out; `known` by node, None while it is weighed."""
    key = id(node)
    if key in known:
        weight = known[key]
        if weight is None:
            raise InputError(f"{where}: a value holds itself{_line(node)}")
        return weight
    known[key] = None
    if isinstance(node, yaml.MappingNode):
        weight = 1 + sum(_weigh(loader, one, known, where) for pair in node.value for one in pair)
        _check_keys(loader, node, where)
    elif isinstance(node, yaml.SequenceNode):
        weight = 1 + sum(_weigh(loader, one, known, where) for one in node.value)
    else:
        if node.tag in _NUMBERS and len(node.value) > _LONGEST_NUMBER:
            raise InputError(f"{where}: a number of {len(node.value)} letters{_line(node)}")
        weight = 1 + len(node.value)
    if weight > _MOST_WRITTEN_OUT:
        raise InputError(f"{where}: repeats itself beyond measure{_line(node)}")
    known[key] = weight
    return weight


def _check_keys(loader: yaml.SafeLoader, node: yaml.MappingNode, where: str) -> None:
    """By their values, as `1` and `0x1` are one key."""
    seen: set[Any] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        value = (key.tag, key.value) if key.tag in _NAMES else loader.construct_object(key)
        if value in seen:
            raise InputError(f"{where}: the key {key.value[:40]!r} stands twice{_line(key)}")
        seen.add(value)


def _line(node: yaml.Node) -> str:
    return f", line {node.start_mark.line + 1}"
