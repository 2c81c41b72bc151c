"""Names of the files in a study's folder, good on every file system. No torch."""

import hashlib
import re

_PLAIN_NAME = re.compile(r"[a-z0-9]([a-z0-9=,. -]{0,58}[a-z0-9])?")


def reference_name(shape_key: str) -> str:
    """Of a shape's reference: the snapshot that every candidate is compared with."""
    return f"reference {shape_key}.safetensors"


def trace_name(shape_key: str, plan: str) -> str:
    """Of the trace of a plan's update, another for every plan; plans given as data have any name."""
    return f"trace {shape_key} {_plain(plan)}.json.gz"


def history_name(shape_key: str, plan: str) -> str:
    """Of the CUDA allocator's history over a plan's update, named as its trace is."""
    return f"history {shape_key} {_plain(plan)}.pickle"


def _plain(plan: str) -> str:
    if _PLAIN_NAME.fullmatch(plan):
        return plan
    told = re.sub(r"[^a-z0-9=,. -]+", "-", plan.lower())[:60].strip(" -.,=")
    return f"{told} {hashlib.sha256(plan.encode()).hexdigest()[:8]}".lstrip()
