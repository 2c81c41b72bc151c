"""The page of a decision on supplied figures: the one of a study, without what nobody here has seen."""

import hashlib

from .page.document import document
from .page.view import ReportView, ShapeView, SignedFile
from .supplied import SuppliedDecision, SuppliedFound


def render_supplied(said: SuppliedDecision, found: SuppliedFound) -> bytes:
    """The page, UTF-8: the same evidence gives the same bytes."""
    given = found.given
    shapes = tuple(
        ShapeView(
            shape_key=one.shape_key,
            shape=one.shape,
            verdict=one.verdict,
            gates=one.gates,
            timing=None if given.update_s is None else given.update_s.timing,
        )
        for one in said.shapes
    )
    return document(
        ReportView(
            plan=said.plan,
            verdict=said.verdict,
            sentence=said.sentence,
            shapes=shapes,
            thresholds=said.received.thresholds,
            declared_at="",
            first_measured_at=None,
            workload={"name": said.workload},
            not_claimed=said.not_claimed,
            files=tuple(
                SignedFile(f"evidence/{name}", len(data), hashlib.sha256(data).hexdigest())
                for name, data in sorted(found.files.items())
            ),
            supplied=given,
            received=said.received.sentence,
        )
    )
