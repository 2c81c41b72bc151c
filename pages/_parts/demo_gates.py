"""The gates in the demo: two sliders that ask what if, and the three gates as they were decided."""

from collections.abc import Sequence
from html import escape

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.gates import GATE_NAMES
from recompute_core.results import Gate, GateId
from recompute_core.spec import Thresholds
from recompute_core.studies.store import StudyRow
from recompute_core.words import sentence_case

from . import gate_address, markup
from .choices import put
from .words import GATE_MEANINGS, figure, interval, literal

_SLIDERS: dict[gate_address.Name, GateId] = {
    "peak_ratio": "memory_saving",
    "update_ratio": "update_latency",
}
"""What can be moved here, and its gate."""
_KEPT, _VISITS = "what-if", "demo visits"


def asked_gates(row: StudyRow) -> Thresholds:
    """Draws the two sliders and returns the thresholds they stand at."""
    declared, ends = row.spec.thresholds, gate_address.ends_of(row.spec.thresholds)
    kept = st.session_state.setdefault(_KEPT, {})
    limits: Thresholds = kept.setdefault(row.id, _from_address(declared))
    places = st.columns(2, gap="medium")
    with places[0]:
        peak = _slider("Peak, at most", ends.peak, row.id, "peak_ratio", limits)
    with places[1]:
        update = _slider("Update time, at most", ends.update, row.id, "update_ratio", limits)
    asked = limits.model_copy(update={"peak_ratio": peak, "update_ratio": update})
    kept[row.id] = asked
    gate_address.write(declared, asked, _SLIDERS)
    return asked


def _slider(
    label: str, ends: tuple[float, float], study: str, name: gate_address.Name, limits: Thresholds
) -> float:
    # A slider that comes back to the page starts anew: the browser and this server would each remember
    # another place of it.
    key = f"demo {name} {study} {st.session_state.get(_VISITS, 0)}"
    help_, value = GATE_MEANINGS[_SLIDERS[name]], getattr(limits, name)
    return round(st.slider(label, *ends, value, step=0.01, key=key, help=help_), 6)


def start_anew() -> None:
    """The sliders stand where they were left, whatever the browser remembers of them."""
    st.session_state[_VISITS] = st.session_state.get(_VISITS, 0) + 1


def forget_moved(row: StudyRow) -> None:
    """Back to the declared gates."""
    st.session_state.get(_KEPT, {}).pop(row.id, None)
    start_anew()
    leave_address()


def leave_address() -> None:
    """What was asked of one study is not asked of the next."""
    for name in _SLIDERS:
        put(gate_address.PARAMS[name], [])


def _from_address(declared: Thresholds) -> Thresholds:
    try:
        return gate_address.read(declared, _SLIDERS)
    except InputError as error:
        st.warning(literal(f"The thresholds in the address are not used: {error}"))
        return declared


# --- the three gates as cards ----------------------------------------------------------------------


def gate_cards(gates: Sequence[Gate]) -> str:
    """Each gate with its mark, its figure against its threshold, and both as a bar."""
    return f'<ul class="rs-demo-gates">{"".join(map(_card, gates))}</ul>'


_FIGURES: dict[GateId, str] = {
    "gradient_parity": "largest gap {}",
    "memory_saving": "{} of plain's peak",
    "update_latency": "{} times plain's time",
}


def _card(gate: Gate) -> str:
    exact = gate.id == "gradient_parity"
    limit = figure(gate.threshold) if exact else f"{gate.threshold:g}"
    if gate.observed is None:
        said = gate.sentence
    else:
        span = interval(gate.ci95, not exact)
        within = "" if span == "exact" else f" ({span})"
        said = _FIGURES[gate.id].format(f"{figure(gate.observed, not exact)}{within}")
    name = sentence_case(GATE_NAMES[gate.id])
    return (
        f'<li class="rs-edge-{gate.outcome}"><div><b>{escape(name)}</b>'
        f"{markup.outcome_mark(gate.outcome)}</div><p>{escape(said)}"
        f"<span>at most {escape(limit)}</span></p>{_bar(gate)}</li>"
    )


def _bar(gate: Gate) -> str:
    """How far the figure and its interval reach, and where its gate is; nothing to draw for a gap."""
    if gate.id == "gradient_parity" or gate.observed is None:
        return ""
    span = max(1.0, 1.15 * max(gate.threshold, *(gate.ci95 or (gate.observed,))))
    low, high = gate.ci95 or (gate.observed, gate.observed)
    reach, tick, least, most = (
        min(100.0, 100 * max(value, 0.0) / span) for value in (gate.observed, gate.threshold, low, high)
    )
    between = f'<s style="left:{least:.1f}%;width:{most - least:.1f}%"></s>' if low < high else ""
    return (
        f'<span class="rs-demo-bar" aria-hidden="true"><i style="width:{reach:.1f}%"></i>{between}'
        f'<u style="left:{tick:.1f}%"></u></span>'
    )
