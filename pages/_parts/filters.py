"""Trade-off's filters: which candidates table, picture and tabs show. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from recompute_core.results import Judged, Verdict

from .palette import VERDICT_MARK


@dataclass(frozen=True)
class Filters:
    """Candidates of these verdicts and plans; none of a kind means all of it."""

    verdicts: tuple[Verdict, ...] = ()
    plans: tuple[str, ...] = ()

    @property
    def narrow(self) -> bool:
        """Whether anything may be left out."""
        return bool(self.verdicts or self.plans)

    def keep(self, one: Judged) -> bool:
        """Whether this candidate is left."""
        return (not self.verdicts or one.verdict in self.verdicts) and (
            not self.plans or one.candidate.plan in self.plans
        )

    def kept(self, judged: Sequence[Judged]) -> list[Judged]:
        """Those that are left."""
        return [one for one in judged if self.keep(one)] if self.narrow else list(judged)

    def document(self) -> dict[str, list[str]]:
        """For the picture, whose points change their outcome while a line moves."""
        marks: list[str] = [VERDICT_MARK[verdict] for verdict in self.verdicts]
        return {"marks": marks, "plans": list(self.plans)}
