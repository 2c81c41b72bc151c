"""From which studies the speed of this machine is taken."""

from recompute_core.studies.flow import CellKey
from recompute_core.studies.forecast import forecast, measured_speed
from recompute_core.studies.store import Store
from tests.core import cells
from tests.core import records as make

_KEY: CellKey = (cells.SMALL, "every-block", "time")


def _studied(store: Store, flops: int, plain_s: float) -> None:
    study = store.create(cells.SPEC)
    reference = cells.reference().model_copy(update={"flops": flops})
    store.finish_cell(study, cells.SMALL, "none", "reference", reference.model_dump(mode="json"))
    store.finish_cell(study, *_KEY, make.timing(1.25, plain_s=plain_s).model_dump(mode="json"))


def test_an_update_of_a_few_milliseconds_says_nothing_of_speed(store: Store) -> None:
    assert measured_speed(store, "gpt") is None
    _studied(store, 6_000_000, 0.003)
    assert measured_speed(store, "gpt") is None
    rough = forecast(cells.SPEC, None)
    assert rough.basis == "a rough estimate: nothing long enough has been timed on this machine yet"
    _studied(store, 8_000_000_000, 0.25)
    _studied(store, 6_000_000, 0.003)
    assert measured_speed(store, "gpt") == 32e9, "the newest study that tells, not the newest"
    assert measured_speed(store, "receipts") is None


def test_an_update_just_long_enough_tells(store: Store) -> None:
    _studied(store, 3_000_000_000, 0.03)
    assert measured_speed(store, "gpt") == 1e11
