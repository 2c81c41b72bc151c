"""What a report says in words of its own: how a plan is taken off, and what is not claimed. Pure."""

from collections.abc import Mapping

from ..plans.export.exported import module_name
from ..plans.names import budget_of
from ..spec import StudySpec
from ..studies.store import StudyRow
from ..words import count
from .evidence import REINVESTED

ROLLBACK_WORDS = (
    "The plan changes no parameter, no buffer, no state dict and no checkpoint file: it shadows calls "
    "of modules on the model in memory. Leave it off and the next run is plain; in a live process "
    "remove_plan takes it off. The command export writes the module with both, and the page Decision "
    "offers it below the gates. What is proven here is of the study's own way to put the plan on and "
    "take it off; the module does the same by itself, and is tested apart from this study."
)
BUDGET_ROLLBACK_WORDS = (
    "The plan changes nothing on the model: it is a setting of torch's compiler, which reads it when a "
    "model is compiled. Leave it out and compile, and the next run is plain. What is proven here is "
    "that plain, compiled again after an update under the budget, is plain."
)


def rollback_words(plan: str) -> str:
    return ROLLBACK_WORDS if budget_of(plan) is None else BUDGET_ROLLBACK_WORDS


def rollback_code(plan: str) -> str:
    """How the plan is put on and taken off, with what `export` writes."""
    budget = budget_of(plan)
    if budget is not None:
        return f"""import torch._functorch.config
torch._functorch.config.activation_memory_budget = {budget / 100:g}  # before the model is compiled
torch._functorch.config.activation_memory_budget = 1.0  # and compiled again: the original again"""
    return f"""from {module_name(plan)} import apply_plan, remove_plan
apply_plan(model)  # training goes on, recomputing
remove_plan(model)  # the original again"""


def _where(spec: StudySpec) -> str:
    """What the figures were measured on; a report does not say which node of a cluster each is of."""
    return "this machine" if spec.engine == "local" else "whichever node of a Ray cluster ran each cell,"


def not_claimed(row: StudyRow, measured: int, not_recorded: Mapping[str, str]) -> tuple[str, ...]:
    """What nobody should read into a report, in sentences; `measured` shapes were so in full."""
    spec, here = row.spec, row.environment
    device = here.get("device_name") or here.get("device") or "the device it ran on"
    libraries = ", ".join(f"{name} {here[name]}" for name in ("torch", "python") if name in here)
    threads = f", {count(here['threads'], 'thread')}" if here.get("threads") else ""
    claims = [
        f"Nothing is claimed of any device but {device}{threads}.",
        f"Nothing is claimed of other library versions than these: {libraries or 'not recorded'}.",
        f"Nothing is claimed of shapes that are not listed; of {count(len(spec.shapes), 'shape')} that "
        f"{'is' if len(spec.shapes) == 1 else 'are'}, the plan was measured in full at {measured}.",
        f"Nothing is claimed of another precision than {spec.precision}.",
        "Parity is of one update from one seed on one batch; nothing is claimed of convergence over "
        "many steps, nor of other data.",
        f"The gates rest on the thresholds declared at {row.declared_at}, before the first "
        "measurement; thresholds moved afterwards are a what-if and were not used.",
        "Nothing is said of studies of this model but those that this one says it repeats: others may "
        "have gone before, under other thresholds."
        if spec.follows
        else "Nothing is said of other studies of this model: it may have been studied before, under "
        "other thresholds.",
        "No figure was supplied by hand, and no estimate was put through a gate.",
        f"Times are of {_where(spec)} as busy as it was; the interval covers the pairs that were run.",
        f"Nothing is claimed of {_others(spec)}, nor of "
        + (
            "compiled models."
            if spec.compile is None
            else f"models that are not compiled, or not by {spec.compile.backend}."
        ),
        "A signature says who released this, not that the machine it ran on was honest.",
    ]
    if REINVESTED in not_recorded:
        claims.append("Nothing is claimed of what the saved memory buys: no second use was measured.")
    else:
        claims.append("A second use of the saved memory is a run of its own: no gate here rests on it.")
    if missing := sorted(not_recorded.keys() - {REINVESTED}):
        claims.append(f"Not recorded: {', '.join(missing)}.")
    return tuple(claims)


def _others(spec: StudySpec) -> str:
    if spec.ranks is None:
        return "several devices that train together"
    ranks = f"{spec.ranks.count} ranks of {spec.ranks.kind} on one machine"
    return f"training over several devices otherwise than over {ranks}"
