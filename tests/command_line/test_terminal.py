"""What a terminal shows of a study."""

from recompute_core.studies.assemble import assemble
from recompute_core.terminal import study_table
from tests.core import cells as made


def test_the_times_of_a_row_are_of_its_own_pairs() -> None:
    cells = list(made.play()[1].values())
    result = assemble(made.row(status="done"), cells)
    columns = {column.header: list(column.cells) for column in study_table(result).columns}
    plain, first = columns["plan"].index("plain"), columns["plan"].index("every-block")
    assert columns["plain ms"][plain] == columns["update ms"][plain] == ""
    timing = next(one.candidate.timing for one in result.judged if one.candidate.plan == "every-block")
    assert timing is not None
    assert columns["plain ms"][first] == f"{timing.plain_median_s * 1e3:.0f}"
    assert columns["update ms"][first] == f"{timing.candidate_median_s * 1e3:.0f}"
    assert columns["paired ratio"][first] == f"{timing.ratio_median:.3f}"
