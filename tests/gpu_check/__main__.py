"""`python -m tests.gpu_check --out DIR`: try what needs a GPU, in under eight minutes.

Parity, out of memory, estimates against measured peaks, a table of lengths, a signed decision, a
compiled study, DDP over two ranks where there are two GPUs, and a frontier. Not FSDP2, not a Ray
cluster, not `reinvest`.

Installs nothing and writes two files, `gpu-check.json` and `gpu-check.md`, anew after each part, so that
what was found is there however it ends. Each part is a process of its own with a time box; one that
fails is a line with its reason. `--dry` runs the same parts at tiny sizes on the CPU.

Exit codes: 0 all parts went well, 4 some did not, 2 there is no GPU or nothing can be written.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recompute_core.errors import InputError
from recompute_core.writing import check_writable, write_whole

from .parts import PARTS, WHOLE_S, Part, Place
from .sizes import DRY, GPU
from .words import markdown

JSON, MARKDOWN = "gpu-check.json", "gpu-check.md"
DRY_NOTE = "dry: no figure of a GPU"


def main() -> None:
    asked = _arguments()
    if asked.part is not None:
        sys.exit(_work(asked))
    try:
        if not asked.dry:
            _check_gpu()
        out = _writable(asked.out)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    whole = _all_parts(out, asked.dry)
    print(f"{out / MARKDOWN}: {whole['sentence']}")
    sys.exit(0 if all(part["state"] == "done" for part in whole["parts"]) else 4)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu_check", description=__doc__.partition("\n\nInstalls")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the two files")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU: no figure of a GPU")
    parser.add_argument("--part", choices=[part.name for part in PARTS], help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    return parser.parse_args()


def _check_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        raise InputError("there is no CUDA device here; --dry runs the same parts on the CPU")


def _writable(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in (JSON, MARKDOWN):
            check_writable(out / name)
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror}") from None
    return out


# --- all parts ------------------------------------------------------------------------------------


def _all_parts(out: Path, dry: bool) -> dict[str, Any]:
    began, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    rows: list[dict[str, Any]] = []
    whole: dict[str, Any] = {}
    patience = (DRY if dry else GPU).patience
    home = Path(tempfile.mkdtemp(prefix="gpu-check-"))
    try:
        for number, part in enumerate(PARTS):
            left = patience * WHOLE_S - (time.monotonic() - began)
            print(f"[{number + 1}/{len(PARTS)}] {part.title}", file=sys.stderr, flush=True)
            rows.append(_one_part(part, home, dry, min(patience * part.box_s, left)))
            whole = _result(rows, started, time.monotonic() - began, dry)
            write_whole(out / JSON, json.dumps(whole, indent=1, allow_nan=False) + "\n")
            write_whole(out / MARKDOWN, markdown(whole))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return whole


def _result(rows: list[dict[str, Any]], started: str, seconds: float, dry: bool) -> dict[str, Any]:
    waiting = [part.title for part in PARTS[len(rows) :]]
    off = [row["title"] for row in rows if row["state"] != "done"]
    sentence = f"{len(rows) - len(off)} of {len(PARTS)} parts went well"
    if off:
        sentence += f"; not so: {', '.join(off)}"
    if waiting:
        sentence += f"; still to come: {', '.join(waiting)}"
    return {
        "schema": "recompute-gpu-check/1",
        "note": DRY_NOTE if dry else None,
        "sentence": sentence,
        "started_at": started,
        "seconds": round(seconds, 1),
        "parts": rows,
    }


def _one_part(part: Part, home: Path, dry: bool, box_s: float) -> dict[str, Any]:
    row = {"name": part.name, "title": part.title, "box_s": round(box_s, 1)}
    if box_s < 5:
        return row | {
            "state": "failed",
            "reason": "no time was left for it",
            "seconds": 0.0,
            "found": {},
        }
    kept = home / f"{part.name}.json"
    command = [sys.executable, "-m", "tests.gpu_check", "--part", part.name, "--out", str(kept)]
    command += ["--home", str(home), "--seconds", str(box_s), *(["--dry"] if dry else [])]
    began = time.monotonic()
    here = {"RECOMPUTE_HOME": str(home), "KINETO_LOG_LEVEL": "5"}
    if dry:  # tiny sizes gain nothing from threads, and lose much where the cores are others' too
        here["OMP_NUM_THREADS"] = "1"
    worker = subprocess.Popen(command, env={**os.environ, **here})
    try:
        code = worker.wait(timeout=box_s)
        why = None if code == 0 else f"its process ended with code {code}"
    except subprocess.TimeoutExpired:
        why = f"not finished after {box_s:.0f} s; what it had found is kept"
    finally:
        worker.kill()
        worker.wait()
    said = json.loads(kept.read_text()) if kept.exists() else {"found": {}, "reason": None}
    reason = said["reason"] or why
    return row | {
        "state": "failed" if reason else "done",
        "reason": reason,
        "seconds": round(time.monotonic() - began, 1),
        "found": said["found"],
    }


# --- one part, in its own process -----------------------------------------------------------------


def _work(asked: Any) -> int:
    part = next(part for part in PARTS if part.name == asked.part)

    def keep(found: dict[str, Any], reason: str | None = None) -> None:
        write_whole(asked.out, json.dumps({"found": found, "reason": reason}, allow_nan=False))

    found: dict[str, Any] = {}

    def tell(so_far: dict[str, Any]) -> None:
        found.update(so_far)
        keep(found)

    def say(line: str) -> None:
        print(f"  {line}", file=sys.stderr, flush=True)

    place = Place(DRY if asked.dry else GPU, asked.home, asked.seconds, tell, say)
    try:
        keep(*part.run(place))
    except Exception as error:
        from recompute_core.studies.worker import reason_of

        keep(found, reason_of(error))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a part ends with what started it
    main()
