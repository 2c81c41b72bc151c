"""YAML from outside: plain values alone, the same for every reader, and no more than is written.

A few lines of YAML can stand for billions of values: names that repeat what was said before (`*name`,
`<<`), each repeated in turn. So a document is weighed as it would be if written out, before any value of
it is made. A key that stands twice is refused, as readers differ in which of the two they take.
"""

from typing import Any

import yaml

from .errors import InputError

MOST_LETTERS = 1_000_000
"""Letters of a document."""
_MOST_WRITTEN_OUT = 4 * MOST_LETTERS
"""Values, and letters in them, once all that is repeated is written out; more than a document without
repetitions can hold."""


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
            _weigh(node, {}, where)
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


def _weigh(node: yaml.Node, known: dict[int, int | None], where: str) -> int:
    """What a node takes when it is written out; `known` by node, None while it is weighed."""
    key = id(node)
    if key in known:
        weight = known[key]
        if weight is None:
            raise InputError(f"{where}: a value holds itself{_line(node)}")
        return weight
    known[key] = None
    if isinstance(node, yaml.MappingNode):
        _check_keys(node, where)
        weight = 1 + sum(_weigh(one, known, where) for pair in node.value for one in pair)
    elif isinstance(node, yaml.SequenceNode):
        weight = 1 + sum(_weigh(one, known, where) for one in node.value)
    else:
        weight = 1 + len(node.value)
    if weight > _MOST_WRITTEN_OUT:
        raise InputError(f"{where}: repeats itself beyond measure{_line(node)}")
    known[key] = weight
    return weight


def _check_keys(node: yaml.MappingNode, where: str) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if (key.tag, key.value) in seen:
            raise InputError(f"{where}: the key {key.value[:40]!r} stands twice{_line(key)}")
        seen.add((key.tag, key.value))


def _line(node: yaml.Node) -> str:
    return f", line {node.start_mark.line + 1}"
