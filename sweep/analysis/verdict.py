"""The answer of a sweep in a sentence or two: which configuration is best, and how certain that is.

Also the list of the sweeps in a results folder, each with its best result.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sweep.analysis.ranking import RankedConfiguration, Ranking, Score, limit_interval, rank
from sweep.analysis.sweep_rows import Sweep, Trial, read_sweep
from sweep.errors import InputError, StoreError
from sweep.events import FAILED, Role, Status
from sweep.space.early_terminate import RULES
from sweep.space.objectives import objective
from sweep.statistics.power import LEAST
from sweep.statistics.verdicts import TOO_FEW, Verdict
from sweep.store.folder import ResultsFolder, folders
from sweep.store.ledger import Ledger
from sweep.text import counted, format_setting, printable, score, shortened, trials_named

if TYPE_CHECKING:
    from sweep.analysis.confirmation import Confirmation


def summarize_confirmation(found: Confirmation, named: str) -> list[str]:
    """Return the results of a confirmation in sentences, one per item; ``named`` is the best configuration in words.

    They say, in this order, whether the baseline is beaten and by how much, if there is one, which configuration is
    best, and how far the search overestimated or underestimated it, if it has a fresh seed.
    """
    told = []
    if found.baseline:
        told.append(_describe_gain_over_baseline(found))
    told.append(_describe_finalists(found, named))
    if luck := _describe_overestimate(found):
        told.append(luck)
    return told


def _describe_gain_over_baseline(found: Confirmation) -> str:
    """Return a sentence on whether the best configuration beats the baseline, and by how much.

    If the baseline is itself the best, has no fresh seeds yet or failed, the sentence says that. If it is the best, the
    finalist nearest to it is named by its difference. There must be a baseline among the finalists.
    """
    baseline, best = found.baseline, found.best
    if baseline is not None and baseline.is_broken:
        return f"The baseline {baseline.reason}, and cannot be compared."
    if baseline is None or baseline.mean is None:
        return "The baseline has no fresh seeds yet."
    if baseline is best:
        others = []  # those that were compared with it
        for row in found.rows:
            if row is not best and row.difference is not None:
                others.append(row)
        if not others:
            return "No configuration of the search completed its fresh seeds: nothing is known to beat the baseline."
        near = min(others, key=lambda row: abs(row.difference or 0.0))
        behind = _format_difference(near.difference or 0.0, near.low, near.high)
        return f"Nothing that the search found beats the baseline: the nearest is {behind} behind."
    ahead = _format_difference(baseline.difference or 0.0, baseline.low, baseline.high)
    gap = f"{ahead} over {baseline.seeds} fresh seeds"
    if baseline.verdict == "worse":
        return f"The best configuration beats the baseline by {gap}."
    return f"The best configuration does not beat the baseline: it is ahead by {gap}, which may be luck."


def _describe_finalists(found: Confirmation, named: str) -> str:
    """Return a sentence that names the first finalist, and says how many of them could be the best.

    If the race is decided, it is called the best if another one was shown to be worse, otherwise the one that is left.
    The sentence also says whether the race goes on or why it has ended, and how many finalists failed. If none is left,
    it says only that and why. ``named`` describes the first finalist.
    """
    left = [row for row in found.rows if not row.reason]  # those that have not dropped out
    why = f" ({found.over})" if found.over else ""
    if not left:
        return f"No finalist is left{why}."
    broken = sum(row.is_broken for row in found.rows)
    if broken:
        named_so = f"{counted(broken, 'finalist')} did not complete with a fresh seed"
        why = f"{why}; {named_so}"
    told_apart = len(found.rows) - 1 - broken  # if one is left, all others that did not fail
    if found.decided and told_apart:
        return f"Best is {named}, told apart from {counted(told_apart, 'other finalist')}{why}."
    if found.decided:
        return f"Left is {named}{why}."
    many = f"{len(left)} of {len(found.rows)} finalists could be the best"
    if found.over:
        going = ""
    else:
        going = ", and the race goes on"
    return f"First is {named}, but {many}{why}{going}."


def _describe_overestimate(found: Confirmation) -> str:
    """Return a sentence on how far the search overestimated or underestimated the best configuration's score.

    It has both scores, and the metric on the test data if that was measured, where its name may lack ``val_``. Returns
    "" if that configuration has no result with a fresh seed.
    """
    best = found.best
    if best.mean is None:
        return ""
    told = f"Its {found.metric} was {score(best.selected)} in the search and is {score(best.mean)} with fresh seeds"
    # the test data have no validation metrics, so ``val_loss`` is mostly ``loss`` there
    for name in (_remove_val_prefix(found.metric), found.metric):
        if name in best.tested:
            told += f", {score(best.tested[name])} on the test data"
            break
    # positive if the search promised a better score
    gap = objective(found.metric, found.goal).to_loss(best.mean - best.selected)
    if abs(gap) < 1e-9 * max(abs(best.mean), 1.0):  # equal, but for rounding
        return f"{told}: the search promised no more."
    if gap >= 0:
        return f"{told}: the search overestimated it by {abs(gap):.2g}."
    return f"{told}: the search underestimated it by {abs(gap):.2g}."


def _remove_val_prefix(metric: str) -> str:
    """Return the name of a metric without ``val_`` at its beginning, if it is there."""
    return metric.removeprefix("val_")


def _format_difference(difference: float, low: float | None, high: float | None) -> str:
    """Return the size of a difference with its interval, such as ``0.012 (0.004 to 0.02)``; without one if not known.

    All numbers have two significant digits, and no sign but that of a bound on the other side of 0.
    """
    size = f"{abs(difference):.2g}"
    if low is None or high is None:
        return size
    return f"{size} ({_format_interval(difference, low, high)})"


def _format_interval(difference: float, low: float, high: float) -> str:
    """Return the interval of a difference as text, such as ``0.004 to 0.02``, with two significant digits.

    If the difference is negative, the signs of the bounds are changed, as if it were positive.
    """
    if difference < 0:
        low, high = -low, -high
    low, high = sorted((low, high))
    return f"{low:.2g} to {high:.2g}"


NAMED = 8  # maximum number of parameters of a configuration that are written out


def summarize_ranking(
    ranking: Ranking, *, running: bool = False, addresses: Mapping[str, str] | None = None
) -> str:
    """Return in plain text which configuration is best, and how certain that is.

    It claims no more than the verdicts do; with one training of each configuration, nothing is known about luck.
    Warnings follow: about seeds without an effect, changed spaces, different data and other code. ``running`` says that
    the sweep still runs. ``addresses`` has, by the name of a sweep, how a command names it; the default is its name, by
    which commands find it in ``results`` only.
    """
    found = _format_answer(ranking, addresses or {}, running=running) + _warn_about_idle_seed(
        ranking
    )
    data = warn_about_different_data(trial for row in ranking.rows for trial in row.trials)
    return " ".join(filter(None, (found, ranking.other_space, data, ranking.other_code)))


SHOWN = 12  # number of characters of a fingerprint in a message
MOST_STATES = 3  # maximum number of fingerprints that are named


class TrialData(NamedTuple):
    """Which data a trial has loaded; the fields have the names of those in `Trial`."""

    sweep: str
    trial: int
    data: str | None
    data_reads: str | None


def warn_about_different_data(trials: Iterable[TrialData | Trial]) -> str:
    """Return a warning that trials have loaded different data, and what to do; "" if none is known to have.

    Data that depend on the trials' own parameters differ intentionally, so only trials with equal ``data_reads`` are
    compared; the warning is about those among which there are the most different data, of which it names the first
    `MOST_STATES`. Trials whose data or ``data_reads`` are unknown are left out.
    """
    # trials by ``data_reads`` and fingerprint of the data
    seen: dict[str, dict[str, list[TrialData | Trial]]] = {}
    for one in sorted(trials, key=lambda one: (one.sweep, one.trial)):
        if one.data is not None and one.data_reads is not None:
            seen.setdefault(one.data_reads, {}).setdefault(one.data, []).append(one)
    # the trials by fingerprint whose ``data_reads`` has the most fingerprints
    states = max(seen.values(), key=len, default={})
    if len(states) < 2:
        return ""
    several = len({one.sweep for found in states.values() for one in found}) > 1
    told = []
    for data, found in [*states.items()][:MOST_STATES]:
        told.append(f"{shortened(data, SHOWN)} in {_name_trials(found, with_sweeps=several)}")
    if len(states) > MOST_STATES:
        told.append(f"{len(states) - MOST_STATES} more")
    return (
        f"These trials have seen different data, and their scores do not compare (fingerprints {'; '.join(told)}). "
        "To compare them, train all on the same data, in a new sweep: python -m sweep run FILE."
    )


def _name_trials(trials: Sequence[TrialData | Trial], *, with_sweeps: bool) -> str:
    """Return the numbers of trials as text, sweep by sweep; with the name of each sweep if ``with_sweeps``."""
    numbers: dict[str, list[int]] = {}
    for trial in trials:
        numbers.setdefault(trial.sweep, []).append(trial.trial)
    names = []
    for sweep, numbers_of_sweep in numbers.items():
        of = f" of {sweep}" if with_sweeps else ""
        names.append(f"{trials_named(numbers_of_sweep)}{of}")
    return " and ".join(names)


def _warn_about_idle_seed(ranking: Ranking) -> str:
    """Return a warning if each configuration that completed with several seeds has the same results with all of them.

    The text begins with a space. It is "" if there is nothing to warn about, or if no configuration has completed with
    several seeds.
    """
    several = []
    for row in ranking.rows:
        if _count_completed_seeds(row) > 1:
            several.append(row)
    if not several or not all(row.seed_changes_nothing for row in several):
        return ""
    return (
        " The seed changed nothing: trainings with different seeds gave the same numbers, so these repeats say nothing "
        "about luck. What is random has to be drawn from the trial's seed."
    )


def _count_completed_seeds(row: RankedConfiguration) -> int:
    """Return the number of seeds with which a configuration has completed and reported metrics."""
    seeds = set()
    for trial in row.trials:
        if trial.status is Status.COMPLETED and trial.metrics:
            seeds.add(trial.seed)
    return len(seeds)


def _format_answer(ranking: Ranking, addresses: Mapping[str, str], *, running: bool) -> str:
    """Return which configuration is best and how certain that is; or that there is no answer yet.

    If the sweep was confirmed, these are the results of the confirmation. Otherwise, a comparison with the baseline
    comes first, if there is one. ``running`` says that the sweep still runs, which the answer mentions. ``addresses``
    are those of `summarize_ranking`.
    """
    if not ranking.rows:
        return "No trial has begun, so there is no answer yet."
    if not ranking.best:
        return f"No trial has completed{' yet' if running else ''}, so there is no answer."
    if running:
        begin = "It still runs, and this may change. "
    else:
        begin = ""
    if ranking.confirmed is not None:
        named = _name_configuration(ranking.best[0], ranking)
        return begin + " ".join(summarize_confirmation(ranking.confirmed, named))
    begin += _compare_with_baseline(ranking)
    if len(ranking.objectives) > 1 and ranking.best[0].front == 1:
        return begin + _describe_front(ranking)
    return begin + _describe_best(ranking, addresses)


def _compare_with_baseline(ranking: Ranking) -> str:
    """Return a sentence, followed by a space, on how the best configuration compares with the baseline.

    It gives the difference of their means, over common seeds if these were compared, with its interval. If the baseline
    is itself the best or has not completed, it says only that. Returns "" if there is no baseline, or if there are
    several objectives. A configuration must have completed.
    """
    own = _find_baseline(ranking)
    if own is None or len(ranking.objectives) > 1:
        return ""
    best = ranking.best[0]
    if best is own:
        return "Nothing beats the baseline. "
    if not own.scores or not own.completed:
        return "The baseline has not completed. "
    if own.difference is None:  # they were not compared seed by seed
        gap = best.scores[0].mean - own.scores[0].mean
    else:
        gap = own.difference
    told = _format_difference(gap, own.difference_low, own.difference_high)
    if own.verdict is Verdict.WORSE:
        return f"The best configuration beats the baseline by {told}. "
    if own.verdict is Verdict.TIES:
        why = "may be luck"
    else:
        why = "nothing tells from luck yet; python -m sweep confirm would"
    return (
        f"The best configuration does not beat the baseline: it is ahead by {told}, which {why}. "
    )


def _find_baseline(ranking: Ranking) -> RankedConfiguration | None:
    """Return the best-ranked row that has a trial of a baseline; None if there is none."""
    for row in ranking.rows:
        if any(trial.role is Role.BASELINE for trial in row.trials):
            return row
    return None


def describe_verdict(row: RankedConfiguration, ranking: Ranking) -> str:
    """Return the verdict on a row of ``ranking`` in a few words, such as "worse" or "best, 2 ties", for a table's cell.

    For an undecided row, the text is the reason. If the reason is too few seeds, it also says how many more would tell,
    if that is known. The best row's text has the number of ties, if there are any, but not with a Pareto front.
    """
    match row.verdict:
        case Verdict.TIES:
            return "ties with best"
        case Verdict.WORSE:
            return "worse"
        case Verdict.BEST:
            ties = sum(other.verdict is Verdict.TIES for other in ranking.rows)
            if ties and row.front is None:
                return f"best, {counted(ties, 'tie')}"
            return "best"
        case Verdict.UNDECIDED if row.undecided == TOO_FEW and row.more:
            return f"{TOO_FEW} ({row.more} more would tell)"
        case Verdict.UNDECIDED:
            return row.undecided


def _describe_front(ranking: Ranking) -> str:
    """Return sentences on the Pareto front: how many configurations it has, and those at its ends.

    A sentence on the verdicts about the other configurations follows, if there are any. A configuration counts as
    completed if one of its repeats completed.
    """
    rows = ranking.best
    of = sum(bool(row.completed) for row in ranking.rows)  # configurations that completed
    names = " and ".join(metric for metric, _ in ranking.objectives)
    if len(rows) == 1:
        alone = _name_configuration(rows[0], ranking)
        return (
            f"{alone} is best in {names} at once, of {of} configurations that completed."
            + _describe_dominated(ranking)
        )
    ends = []
    for at, (metric, goal) in enumerate(ranking.objectives):
        best = min(rows, key=lambda row: objective(metric, goal).to_loss(row.scores[at].mean))
        ends.append(
            f"{metric} {score(best.scores[at].mean)} with {_name_configuration(best, ranking)}"
        )
    return (
        f"{len(rows)} of the {of} configurations that completed are on the Pareto front of {names}: no other is better "
        f"in all of these, so the choice between them is yours. At its ends: {'; '.join(ends)}."
        f"{_describe_dominated(ranking)}"
    )


def _describe_dominated(ranking: Ranking) -> str:
    """Return a sentence on the verdicts about configurations that are not on the Pareto front; "" if there are none.

    It begins with a space. Only configurations with a completed trial count. If none has a verdict, it says why.
    """
    others = []
    for row in ranking.rows:
        if row.completed and row.scores and row.front != 1:
            others.append(row)
    if not others:
        return ""
    counts = Counter(row.verdict for row in others)
    if counts[Verdict.UNDECIDED] == len(others):
        return f" Whether luck chose them is not known: {_join_reasons(others)}."
    told = f" Of the other {len(others)}, {counts[Verdict.WORSE]} told from luck to be beaten in all of them"
    if counts[Verdict.TIES]:
        tied = f", {counts[Verdict.TIES]} not"
    else:
        tied = ""
    if counts[Verdict.UNDECIDED]:
        rest = f", {counts[Verdict.UNDECIDED]} without a verdict"
    else:
        rest = ""
    return f"{told}{tied}{rest}."


def _describe_best(ranking: Ranking, addresses: Mapping[str, str]) -> str:
    """Return sentences on the best configuration for one objective, and how it compares with the others.

    They have its mean score, with the interval if it was trained several times, and say if repeats did not complete.
    ``addresses`` are those of `summarize_ranking`.
    """
    best = ranking.best[0]
    top = best.scores[0]
    seeds = len(top.values)
    reached = (
        f"The best was {_name_configuration(best, ranking)} with {top.metric} {score(top.mean)}"
    )
    if seeds > 1:
        reached += f" on average over {seeds} {_name_trainings(best)}{_describe_interval(top)}"
    if best.completed < 1:
        reached += ", although not all of its repeats completed"
    others = []
    for row in ranking.rows:
        if row is not best and row.completed and row.scores:
            others.append(row)
    return f"{reached}. {_compare_with_others(best, others, ranking, addresses)}"


def _compare_with_others(
    best: RankedConfiguration,
    others: Sequence[RankedConfiguration],
    ranking: Ranking,
    addresses: Mapping[str, str],
) -> str:
    """Return sentences on which of the other configurations the best one is better than, and which tie with it.

    Of each group only the nearest to the best one is named, with its difference. Those without a verdict are counted,
    with the reasons. If the best one is not shown to be best, the sentences say why not, and what would help.
    ``others`` are the other configurations that completed, best first.
    """
    if not others:
        return "No other configuration completed to compare it with."
    if best.verdict is not Verdict.BEST:
        return _explain_missing_verdict(others, ranking, addresses)
    ties = [row for row in others if row.verdict is Verdict.TIES]
    worse = [row for row in others if row.verdict is Verdict.WORSE]
    undecided = []
    for row in others:
        if row.verdict is Verdict.UNDECIDED:
            undecided.append(row)
    parts = []
    if ties:
        who = _describe_share(ties, others)
        verb = "ties" if len(ties) == 1 else "tie"
        tie = f"{who[0].upper()}{who[1:]} {verb} with it"
        parts.append(
            f"{tie}, for luck could explain the difference: {_describe_nearest(ties, ranking)}."
        )
    if worse:
        parts.append(
            f"It is better than {_describe_share(worse, others)}: {_describe_nearest(worse, ranking)}."
        )
    if undecided:
        parts.append(
            f"On {_describe_share(undecided, others)} there is no verdict: {_join_reasons(undecided)}."
        )
    return " ".join(parts)


def _explain_missing_verdict(
    others: Sequence[RankedConfiguration], ranking: Ranking, addresses: Mapping[str, str]
) -> str:
    """Return sentences on why the best configuration is not shown to be best, and what would help.

    They begin with how far the next one is behind, or how many have the same mean. ``others`` are the other
    configurations that completed, at least one, best first. ``addresses`` are those of `summarize_ranking`.
    """
    best, follower = ranking.best[0], others[0]
    top = best.scores[0]
    equal = sum(row.scores[0].mean == top.mean for row in others)
    if equal:
        told = f"{counted(equal, 'other configuration')} reached the same score"
    else:
        next_one = _name_configuration(follower, ranking)
        told = f"The next, {next_one}, is {abs(top.mean - follower.scores[0].mean):.2g} behind"
    # trials that go on from one another's weights are no independent trainings
    if any(trial.parent is not None for row in ranking.rows for trial in row.trials):
        return f"{told}. A population is one training: run the sweep with other seeds to see what is luck."
    if len(top.values) < 2:
        return (
            f"{told}. With one seed it cannot be told from luck; repeats: {LEAST} in the sweep file trains each "
            f"with {LEAST} seeds, the fewest for a verdict."
        )
    if follower.undecided != TOO_FEW:
        return f"{told}. There is no verdict: {follower.undecided}."
    # how many seeds would be enough
    if follower.more is not None:
        more = f"; {follower.more} more would tell a difference like that to the next"
    elif follower.difference:
        more = "; no number of further seeds would tell a difference like that"
    else:
        more = f"; it takes {LEAST} at least"
    # the command that trains them, which is for a single sweep
    trains = ""
    if len({row.sweep for row in ranking.rows}) == 1:
        address = addresses.get(best.sweep) or shlex.quote(best.sweep)
        trains = f" python -m sweep confirm {address} trains the candidates with fresh ones."
    return f"{told}. These are too few seeds for a verdict{more}.{trains}"


def _describe_nearest(rows: Sequence[RankedConfiguration], ranking: Ranking) -> str:
    """Return in words which of the rows comes nearest to the best one, and how far it is behind.

    The interval and the p-value of the difference follow, if known. The rows, at least one, are compared ones: they
    have a difference.
    """
    row = min(rows, key=lambda row: abs(row.difference or 0.0))
    if len(rows) > 1:
        named = f"the nearest, {_name_configuration(row, ranking)},"
    else:
        named = _name_configuration(row, ranking)
    if not row.difference:
        return f"{named} has the same mean"
    known = []
    if row.difference_low is not None and row.difference_high is not None:
        known.append(
            f"95 % interval {_format_interval(row.difference, row.difference_low, row.difference_high)}"
        )
    if row.p_adjusted is not None:
        known.append(f"p = {row.p_adjusted:.2g}")
    return f"{named} is {abs(row.difference):.2g} behind" + (
        f" ({', '.join(known)})" if known else ""
    )


def _describe_share(
    rows: Sequence[RankedConfiguration], others: Sequence[RankedConfiguration]
) -> str:
    """Return in words which part of ``others`` the rows are, such as "all 4 others" or "3 of the 4 others".

    It is "the other configuration" if there is a single other. The rows, at least one, are all among the others.
    """
    if len(others) == 1:
        return "the other configuration"
    if len(rows) == len(others):
        return f"all {len(others)} others"
    return f"{len(rows)} of the {len(others)} others"


def _join_reasons(rows: Sequence[RankedConfiguration]) -> str:
    """Return the reasons why rows are undecided as one text, each once, in the order of the rows."""
    return "; ".join(dict.fromkeys(row.undecided for row in rows))


def _name_trainings(row: RankedConfiguration) -> str:
    """Return the word for the trainings of a row: "folds" in a cross-validation, otherwise "seeds"."""
    has_folds = any(trial.fold is not None for trial in row.trials)
    return "folds" if has_folds else "seeds"


def _name_configuration(row: RankedConfiguration, ranking: Ranking) -> str:
    """Return a configuration in words: up to `NAMED` of the parameters that vary, and the numbers of its trials.

    The sweep's name is added if the ranking has several. If no parameter varies, it is "the only configuration".
    """
    parts = []
    for name in ranking.varying:
        if name in row.params:
            parts.append(f"{name}={format_setting(row.params[name])}")
    if len(parts) > NAMED:
        more = f" and {len(parts) - NAMED} more parameters"
    else:
        more = ""
    told = ", ".join(parts[:NAMED]) + more
    where = trials_named([trial.trial for trial in row.trials])
    if len({one.sweep for one in ranking.rows}) > 1:
        where = f"{where} of {row.sweep}"
    if told:
        return printable(f"{told} ({where})")
    return f"the only configuration ({where})"


def _describe_interval(one: Score) -> str:
    """Return the 95 % interval of a score as text, with a space and brackets around it; "" if it has none.

    That of a share is limited to 0 to 1.
    """
    if one.interval is None:
        return ""
    low, high = limit_interval(one.metric, one.values, one.interval)
    return f" (95 % interval {score(low)} to {score(high)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """One sweep in a list; of a damaged sweep, only name, path, state and the reason are known."""

    name: str
    path: str
    # "running", "damaged", "unfinished" (its driver was killed), "failed" (each trial would fail, for the `reason`), or
    # why its last session ended
    state: str
    trials: Mapping[str, int]  # by status
    metric: str | None = None
    goal: str | None = None
    best: float | None = None  # the mean of the best configuration's completed repeats
    best_trial: int | None = None
    verdict: str = ""  # on the best, in words
    started: float | None = None  # seconds since 1970
    duration_s: float | None = None  # without the pauses between sessions
    cost: float | None = None  # of its GPUs, if they have a price
    reason: str = ""
    paused: int = 0  # number of interrupted trials that wait until early termination resumes them
    fresh: int = 0  # number of trials that train finalists with fresh seeds
    other_data: str = ""  # the warning that its trials have seen different data
    other_code: str = ""  # in what its trainings differ besides parameters, such as code
    other_space: str = ""  # the warning that configurations were chosen from different spaces
    note: str = ""  # by a person
    queued: int = 0  # number of configurations that a person has added and that have not started


def list_summaries(results_dir: Path) -> list[SweepSummary]:
    """Return a summary of each sweep in the folder ``results_dir``, also of damaged ones, by the time of their start.

    Damaged ones and those that never began are last, by name. The list is empty if the folder does not exist. Raises
    `StoreError` if the folder itself cannot be read.
    """
    found = []
    for folder in folders(results_dir):
        found.append(summarize_sweep(folder))
    # the first item keeps None and numbers apart, which cannot be compared
    return sorted(found, key=lambda one: (one.started is None, one.started, one.name))


def summarize_sweep(folder: ResultsFolder) -> SweepSummary:
    """Read a sweep and return its summary for a list.

    If the sweep cannot be read, the summary has the state "damaged" and the error as its reason, and nothing is raised.
    The verdict is empty if no configuration completed, or the best one was trained only once.
    """
    name, path = folder.name, folder.place
    try:
        sweep = read_sweep(folder)
        paused = _count_paused_trials(sweep)
        ranking = rank([sweep])
    except (StoreError, InputError) as error:  # the file of another release may be refused
        return SweepSummary(name=name, path=path, state="damaged", trials={}, reason=str(error))
    best = next(iter(ranking.best), None)
    if sweep.objectives:
        metric, goal = sweep.objectives[0]
    else:
        metric, goal = None, None
    # the session ended because each trial would fail; the reason follows
    if sweep.state.startswith(FAILED):
        state, reason = "failed", sweep.state.removeprefix(FAILED)
    else:
        state, reason = sweep.state, ""
    return SweepSummary(
        name=name,
        path=path,
        state=state,
        reason=reason,
        trials=dict(Counter(trial.status.value for trial in sweep.trials)),
        metric=metric,
        goal=goal,
        best=best.scores[0].mean if best else None,
        best_trial=best.trials[0].trial if best else None,
        paused=paused,
        fresh=sum(trial.role is Role.CONFIRM for trial in sweep.trials),
        verdict=describe_verdict(best, ranking) if best and len(best.trials) > 1 else "",
        started=sweep.history.started,
        duration_s=sweep.history.active_s,
        cost=sweep.cost,
        other_data=warn_about_different_data(sweep.trials),
        other_code=ranking.other_code,
        other_space=ranking.other_space,
        note=sweep.history.note,
        queued=len(sweep.history.queue),
    )


def _may_pause(sweep: Sweep) -> bool:
    """Return whether the stopping rule or the population of a sweep may pause trials; True for a user's own rule."""
    if "population" in sweep.info.spec:
        return True
    match sweep.info.spec.get("early_terminate"):
        case None:
            return False
        case {"type": str(kind)} if kind in RULES:
            return RULES[kind].pauses
    return True  # a rule of the user's own


def _count_paused_trials(sweep: Sweep) -> int:
    """Return the number of paused trials, from the log: the tables only say that they are interrupted.

    Raises `StoreError` if the log cannot be read. It is only read if a trial is interrupted and the sweep may pause
    trials.
    """
    has_interrupted = any(trial.status is Status.INTERRUPTED for trial in sweep.trials)
    if not has_interrupted or not _may_pause(sweep):
        return 0
    ledger = Ledger(keep_epochs=False)
    for _ in ledger.follow(sweep.folder.log):
        pass
    return sum(trial.paused for trial in ledger.trials.values())
