"""The lock names what requirements.txt names, and every file of it by its hash."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def _pins(text: str) -> dict[str, str]:
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in _PIN.findall(text)}


def test_what_is_pinned_is_locked() -> None:
    """`requirements.lock` says in its first lines how it is made anew."""
    lock = (ROOT / "requirements.lock").read_text()
    pinned, locked = _pins((ROOT / "requirements.txt").read_text()), _pins(lock)
    assert pinned["torch"] == "2.13.0"
    assert {name: locked.get(name) for name in pinned} == pinned
    entries = re.split(r"\n(?=\S)", lock)[2:]  # the first two lines are its head
    assert len(entries) == len(_PIN.findall(lock)) > len(pinned)
    for entry in entries:
        assert re.search(r" --hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]
