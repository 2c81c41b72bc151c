"""Estimates for a process that must not load torch: a warm helper that does, asked over a pipe.

`Estimator` belongs to the dashboard's server. Its helper, this module run as a script, starts with the
first question, reads one JSON question a line and answers one a line, and ends when the server does.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import traceback
from collections import OrderedDict
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from .errors import InputError
from .estimating import Field, advice, estimate, largest
from .results import Estimate
from .spec import StudySpec

_PATIENCE_S = 120.0
_REMEMBERED = 1024


class Estimator:
    """Answers from the helper, one question at a time, each answer remembered."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._helper: subprocess.Popen[bytes] | None = None
        self._answers: OrderedDict[str, Any] = OrderedDict()

    def ask(self, spec: StudySpec, shape: dict[str, int], plan: str) -> Estimate:
        """`estimating.estimate`; raises InputError for what cannot be, or when no answer comes."""
        question = {"what": "estimate", "spec": _part_of(spec, plan), "shape": shape, "plan": plan}
        return Estimate.model_validate(self._answer(question))

    def advice(self, spec: StudySpec, shape: dict[str, int]) -> tuple[str, ...]:
        """`estimating.advice` on plain; raises as `ask` does."""
        asked = _part_of(spec, "none", "thresholds")
        return tuple(self._answer({"what": "advice", "spec": asked, "shape": shape}))

    def largest(
        self, spec: StudySpec, plan: str, field: Field, budget_bytes: int
    ) -> tuple[int, Estimate] | None:
        """`estimating.largest`; raises as `ask` does."""
        asked = _part_of(spec, plan, "shapes")
        found = self._answer(
            {
                "what": "largest",
                "spec": asked,
                "plan": plan,
                "field": field,
                "budget_bytes": budget_bytes,
            }
        )
        return None if found is None else (found["size"], Estimate.model_validate(found["estimate"]))

    @property
    def is_warm(self) -> bool:
        """Whether the helper is there; starting it takes the seconds of torch's import."""
        return self._helper is not None and self._helper.poll() is None

    def close(self) -> None:
        """End the helper; the next question starts another."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.kill()
            with helper:
                pass

    def _answer(self, question: dict[str, Any]) -> Any:
        line = json.dumps(question, sort_keys=True)
        with self._lock:
            if line not in self._answers:
                answer = self._told(line)
                if "error" in answer:
                    raise InputError(answer["error"])
                self._answers[line] = answer["found"]
                if len(self._answers) > _REMEMBERED:
                    self._answers.popitem(last=False)
            return self._answers[line]

    def _told(self, line: str) -> dict[str, Any]:
        """The helper's answer; one that died is started again, once."""
        for _ in range(2):
            with contextlib.suppress(OSError, EOFError):
                return self._exchange(line)
            self.close()
        raise InputError("the estimator ended twice without an answer; is there memory left?")

    def _exchange(self, line: str) -> dict[str, Any]:
        if not self.is_warm:
            self.close()
            self._helper = _start()
        assert self._helper is not None and self._helper.stdin and self._helper.stdout
        self._helper.stdin.write(line.encode() + b"\n")
        self._helper.stdin.flush()
        deadline, said = time.monotonic() + self._patience_s, b""
        while not said.endswith(b"\n"):
            if not wait([self._helper.stdout.fileno()], max(0, deadline - time.monotonic())):
                self.close()
                raise InputError(f"the estimator gave no answer within {self._patience_s:g} s")
            more = os.read(self._helper.stdout.fileno(), 1 << 20)
            if not more:
                raise EOFError
            said += more
        answer: dict[str, Any] = json.loads(said)
        return answer


def _part_of(spec: StudySpec, plan: str, *also: str) -> dict[str, Any]:
    """What an answer depends on, and no more: studies that differ in the rest share their answers."""
    parts = {"workload", "checkpoint", "optimizer", "precision", *also}
    part = spec.model_dump(mode="json", include=parts)
    if plan in spec.custom_plans:
        part |= spec.model_dump(mode="json", include={"custom_plans": {plan}})
    return part


def _start() -> "subprocess.Popen[bytes]":
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", "recompute_core.estimator"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )


# --- the helper ------------------------------------------------------------------------------


def main() -> None:
    """Answer questions from standard input until it ends, which it does with the server."""
    os.nice(5)  # a study that is being measured comes first
    questions: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed must not stand between answers
    while True:
        answers.write(json.dumps(answered(json.loads(questions.get()))) + "\n")
        answers.flush()


def _listen(questions: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        questions.put(line)
    os._exit(0)


def answered(question: dict[str, Any]) -> dict[str, Any]:
    """`found` or `error` for one question."""
    try:
        return {"found": _found(StudySpec.model_validate(question["spec"]), question)}
    except InputError as error:
        return {"error": str(error)}
    except Exception as error:  # our own bug: told in the server's log, and not asked a second time
        traceback.print_exc()
        return {"error": f"the estimate failed: {type(error).__name__}: {error}"}


def _found(spec: StudySpec, question: dict[str, Any]) -> Any:
    what = question["what"]
    if what == "estimate":
        return estimate(spec, question["shape"], question["plan"]).model_dump(mode="json")
    if what == "advice":
        shape = question["shape"]
        return advice(spec, shape, estimate(spec, shape, "none"))
    assert what == "largest"
    reached = largest(spec, question["plan"], question["field"], question["budget_bytes"])
    if reached is None:
        return None
    return {"size": reached[0], "estimate": reached[1].model_dump(mode="json")}


if __name__ == "__main__":
    main()
