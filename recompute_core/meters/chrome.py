"""The profiler's events of one update as a trace in Chrome's format, for Perfetto and chrome://tracing.

Written from the events and not by the profiler's own export, which names this machine and its folders.
Beside the ops it draws the bytes alive, the phases of the update, and where blocks begin.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from .marks import PHASES
from .timeline import MARK, Trace

MOST_BYTES = 2_000_000
"""Of a trace's file."""
UPDATE, BYTES = "update", "bytes alive"
"""The track of phases and blocks, and the counter."""

_FOLDERS = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[\\/](?:[^\\/\"'\s]+[\\/])+")


class TraceNotKept(Exception):
    """Why there is no trace, in words."""


def keep_trace(
    profiler: Any, trace: Trace, state_bytes: int, path: Path, most_bytes: int = MOST_BYTES
) -> str:
    """Write a finished profiler's events and its trace, gzipped; returns the file's digest.

    Raises TraceNotKept when the file would be larger than `most_bytes` or cannot be written.
    """
    events = profiler.profiler.kineto_results.events()
    text = ",\n".join(chrome_events(events, trace, state_bytes))
    head = '{"displayTimeUnit":"ms","traceEvents":[\n'
    data = gzip.compress(f"{head}{text}\n]}}\n".encode(), 6, mtime=0)
    if len(data) > most_bytes:
        raise TraceNotKept(f"{len(data)} bytes; at most {most_bytes} are kept")
    part = path.with_name(f"{path.name}.partial")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise TraceNotKept(f"it cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
    return "sha256:" + hashlib.sha256(data).hexdigest()


def chrome_events(events: Iterable[Any], trace: Trace, state_bytes: int) -> Iterator[str]:
    """Each event as JSON, ops first; times are microseconds since the first of them."""
    ops = [
        (event.start_ns(), event.duration_ns(), event.start_thread_id(), event.name())
        for event in events
        if not event.name().startswith((MARK, "["))
    ]
    moments = [*(op[0] for op in ops), *trace.times[:1], *(at for at, _ in trace.marks[:1])]
    start = min(moments, default=0)
    threads: dict[int, int] = {}
    names: dict[str, str] = {}

    def us(ns: int) -> str:
        return f"{ns // 1000}.{ns % 1000:03}"

    yield _named("process_name", 0, "one update")
    yield _named("thread_name", 0, UPDATE)
    for at, lasting, thread, name in sorted(ops, key=lambda op: (op[0], -op[1])):
        if thread not in threads:
            threads[thread] = len(threads) + 1
            yield _named("thread_name", threads[thread], f"thread {threads[thread]}")
        told = names.get(name)
        if told is None:
            told = names[name] = json.dumps(without_folders(name))
        yield (
            f'{{"ph":"X","pid":1,"tid":{threads[thread]},"name":{told},'
            f'"ts":{us(at - start)},"dur":{us(lasting)}}}'
        )
    yield from _phases(trace, start, us)
    for at, alive in zip(trace.times, trace.alive, strict=True):
        yield (
            f'{{"ph":"C","pid":1,"name":"{BYTES}","ts":{us(at - start)},'
            f'"args":{{"bytes":{state_bytes + alive}}}}}'
        )


def _phases(trace: Trace, start: int, us: Any) -> Iterator[str]:
    """Phases as spans up to the next one, blocks as moments."""
    end = max([*trace.times[-1:], *(at for at, _ in trace.marks[-1:])], default=start)
    begun = [(at, label) for at, label in trace.marks if label in PHASES]
    for (at, label), (until, _) in pairwise([*begun, (end, "")]):
        yield (
            f'{{"ph":"X","pid":1,"tid":0,"name":{json.dumps(label)},'
            f'"ts":{us(at - start)},"dur":{us(until - at)}}}'
        )
    for at, label in trace.marks:
        if label not in PHASES:
            name = json.dumps(without_folders(label))
            yield f'{{"ph":"i","s":"t","pid":1,"tid":0,"name":{name},"ts":{us(at - start)}}}'


def _named(kind: str, thread: int, name: str) -> str:
    return f'{{"ph":"M","pid":1,"tid":{thread},"name":"{kind}","args":{{"name":"{name}"}}}}'


def without_folders(text: str) -> str:
    """A text with the folders of every absolute path taken out."""
    return _FOLDERS.sub("", text)
