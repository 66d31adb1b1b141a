"""Verdicts where several objectives have no one best: who is told to be worse in all of them than one of the front."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean

from sweep.statistics import intervals
from sweep.statistics.verdicts import ALPHA, LEAST, TOO_FEW, Compared, K, Scores, Table, Verdict, differences, seeds_for


def compare(
    tables: Sequence[Table[K]], *, maximize: Sequence[bool], front: Collection[K], folds: int = 0
) -> dict[K, Compared]:
    """The verdict on each configuration, of one table of scores for each objective.

    One of the ``front`` is best: no other has better means in all objectives. Another one is worse where one of the
    front has better means in all of them and each difference is told from luck: its p-value is the largest of theirs
    (Berger, Technometrics 24, 1982), times the number of all pairs, for the front was chosen by the same scores.
    """
    names = [name for name in tables[0] if all(table.get(name) for table in tables)]
    pairs = len(names) * (len(names) - 1) // 2
    needed = LEAST if folds else seeds_for(pairs)
    found = {}
    for name in names:
        common = {one: len(differences(tables[0][name], tables[0][one])) for one in front if one != name}
        most = max(common.values(), default=0)
        if name in front:
            others = (len(differences(tables[0][name], tables[0][one])) for one in names if one != name)
            most = max(others, default=0)
        if not pairs:
            found[name] = Compared(Verdict.UNDECIDED, len(tables[0][name]), reason="nothing to compare with")
        elif most < needed:
            found[name] = Compared(Verdict.UNDECIDED, most, more=needed - most, reason=TOO_FEW)
        elif name in front:
            found[name] = Compared(Verdict.BEST, len(tables[0][name]))
        else:
            tested = [one for one, count in common.items() if count >= needed]
            p = min(_beaten([(t[name], t[one]) for t in tables], maximize, folds) for one in tested)
            adjusted = min(p * pairs, 1.0)
            verdict = Verdict.WORSE if adjusted <= ALPHA else Verdict.TIES
            found[name] = Compared(verdict, most, p=p, p_holm=adjusted, p_any=adjusted)
    return found


def _beaten(scores: Sequence[tuple[Scores, Scores]], maximize: Sequence[bool], folds: int) -> float:
    """The p-value of the second being better than the first in all objectives; 1 where it is not by its means."""
    values = [differences(one, other) for one, other in scores]
    if any(mean == 0 or (mean > 0) == high for mean, high in zip(map(fmean, values), maximize, strict=True)):
        return 1.0
    if folds:
        return max(intervals.t_test(one, intervals.shared_by_folds(folds)) for one in values)
    import numpy as np

    from sweep.statistics import signs

    return float(signs.each(np.array(values).T).p.max())
