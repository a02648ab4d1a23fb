"""Stored states of earlier formats, made into those of the present one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from skokde._engine.mixture import merged_details
from skokde._engine.pooling import CONTAMINATIONS, PRIOR_PRECISION
from skokde._engine.recent import MEMORIES

# What fields were called in format 1.
RENAMED_SINCE_1 = {
    "n_foretold": "n_compressed",
    "evidence": "expert_counts",
    "due": "next_checkpoint",
    "window": "pending",
    "predicted": "replay",
}

# Of models with full covariances whose threshold is predicted, in format 2: the estimates and the
# Gaussians of each of two shapes, and their groups in the pool.
SHAPES_OF_2, ESTIMATES_OF_2, GAUSSIANS_OF_2, GROUPS_OF_2 = 2, 24, 3, 4
# In samples, of each expert that is new: prediction has yet to show what it is worth.
CREDIT = 1e-4
# Short memories until format 3, the longer of which two stand for today; three discriminants, then
# as now.
MEMORIES_OF_3, DISCRIMINANTS_OF_3 = 2, 3

# With covariances of low rank, until format 5: for each shape the estimates, three Gaussians of
# scale one, and two wider ones. Shrunk ones stand for themselves since.
ESTIMATES_OF_5, ALIKE_OF_5, GAUSSIANS_OF_5 = 24, 3, 5

# Until format 7: shapes of full covariances; until 8: groups of each, and what was pooled besides,
# without short memories and with them. Until 9 votes were the last one, beside more than one group;
# and until 11, beside the scales.
SHAPES_OF_7, SIDES_OF_8, DISCRIMINANTS_OF_8, OTHERS_OF_8 = 3, 2, 1, 6

# Short memories that vote since format 14.
VOTING_MEMORIES_OF_14 = 3

# Where the threshold is predicted, until format 14: thresholds, widths, and experts of each shape;
# if the bandwidth is not predicted, that are no more than the thresholds.
THRESHOLDS_OF_14, WIDTHS_OF_14, EXPERTS_OF_14 = 6, 4, 27

# Thresholds and widths until format 22, where both are predicted.
THRESHOLDS_OF_22, WIDTHS_OF_22 = 7, 4

# With covariances of low rank, until format 18: what is pooled besides groups of all shapes where
# there are votes, without short memories and with them; and shapes that are pooled since in
# transformed coordinates.
OTHERS_OF_18, OTHERS_WITH_MEMORIES_OF_18, TRANSFORMED_SINCE_18 = 6, 13, 2

# Until format 19: distances by which all samples voted, with correlations and without; other
# voters, without short memories and with them; and as many terms as there were without votes.
DISTANCES_OF_19, OTHER_VOTERS_OF_19, TERMS_WITHOUT_VOTES_OF_19 = (2, 1), (1, 3), (3, 8)


def upgraded(stored: Mapping[str, Any]) -> dict[str, Any]:
    """An estimator's stored state, of any format, in the present one."""
    state = dict(stored)
    number = state.pop("_format")
    if number == 1:
        state = _from_1(state)
    if number <= 2:
        state = _replaced(state, _with_shapes_of_3)
    if number <= 3:
        state = _from_3(_replaced(state, _with_memories_of_4))
    if number <= 4 and "_n_samples_seen" in state:
        state["_waiting"] = None  # there were no missing values
    if number <= 5:
        state = _replaced(state, _with_gaussians_of_6)
    if number <= 6:
        state = _replaced(state, _with_contaminations_of_7)
    if number <= 7:
        state = _from_7(state)
    if number <= 8:
        state = _from_8(state)
    if number <= 9:
        state = _from_9(state)
    if number <= 10:
        state = _from_10(state)
    if number <= 11:
        state = _from_11(state)
    if number <= 12:
        state = _from_12(state)
    if number <= 13:
        state = _from_13(state)
    if number <= 14:
        state = _replaced(state, _with_thresholds_of_15)
    if number <= 15:
        state = _from_15(state)
    if number <= 16:
        state = _replaced(state, _with_details_of_17)
    if number <= 17:
        state = _from_17(state)
    if number <= 18:
        state = _from_18(state)
    if number <= 19:
        state = _from_19(state)
    if number <= 20:
        state = _from_20(state)
    if number <= 21:
        state = _replaced(state, _with_fading_of_22)
    if number <= 22:
        state = _replaced(state, _with_width_of_23)
    return state


def _replaced(value: Any, replace: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A value with all dicts in it replaced by what a function makes of them, inner ones first."""
    if isinstance(value, list):
        return [_replaced(item, replace) for item in value]
    if isinstance(value, Mapping):
        return replace({name: _replaced(item, replace) for name, item in value.items()})
    return value


def _from_1(state: dict[str, Any]) -> dict[str, Any]:
    fields = ("_mixture", "_limit", "_n_foretold", "_evidence")
    if all(name in state for name in fields):
        stored = {name[1:]: state.pop(name) for name in fields}
        state["_state"] = _replaced(stored, _renamed)
    if "_calibration" in state:
        calibration = _replaced(state["_calibration"], _renamed)
        state["_calibration"] = calibration | {"refreshed": calibration["position"]}
        state["_class_memory"] = None
    return state


def _renamed(stored: dict[str, Any]) -> dict[str, Any]:
    """With the names of format 2, and the fields that there were not."""
    if "weights" in stored and "precision" in stored:
        weights = stored.pop("weights")
        stored |= {"exponents": weights[:2].copy(), "offsets": weights[2:].copy()}
    if "log_densities" in stored:
        stored["log_densities"] = stored["log_densities"][:, None]
    stored = {RENAMED_SINCE_1.get(name, name): item for name, item in stored.items()}
    if "n_compressed" in stored:
        stored["level"], stored["recent"] = 0, None
        stored["partitions"] = np.empty((0, stored["n_compressed"]), dtype=np.intp)
    return stored


def _with_shapes_of_3(stored: dict[str, Any]) -> dict[str, Any]:
    """With a third shape, which has next to no credit yet; of one feature with one shape in all."""
    n_experts = SHAPES_OF_2 * (ESTIMATES_OF_2 + GAUSSIANS_OF_2)
    if np.shape(stored.get("expert_counts")) == (n_experts,):
        estimates, gaussians = np.split(stored["expert_counts"], [SHAPES_OF_2 * ESTIMATES_OF_2])
        shapes = [a.reshape(SHAPES_OF_2, -1) for a in (estimates, gaussians)]
        if stored["mixture"]["means"].shape[1] == 1:
            parts = [of_shapes.sum(axis=0) for of_shapes in shapes]
        else:
            parts = [np.append(a, np.full(a.shape[1], CREDIT)) for a in shapes]
        stored["expert_counts"] = np.concatenate(parts)
    covariance, pool = stored.get("covariance"), stored.get("pool")
    if np.ndim(covariance) == 2 and len(pool["exponents"]) > GROUPS_OF_2:
        stored["pool"] = _pool_of_3(pool, len(covariance))
        stored["replay"] = None  # what its rows have in other groups is not known
    return stored


def _pool_of_3(pool: dict[str, Any], d: int) -> dict[str, Any]:
    exponents, precision = pool["exponents"], pool["precision"]
    sides = GROUPS_OF_2 // SHAPES_OF_2
    if d == 1:
        of_one = exponents[:GROUPS_OF_2].reshape(SHAPES_OF_2, sides).sum(axis=0)
        exponents = np.append(of_one, exponents[GROUPS_OF_2:])
        kept = np.r_[:sides, GROUPS_OF_2 : len(precision)]
        precision = precision[np.ix_(kept, kept)]
    else:
        return _with_densities(pool, GROUPS_OF_2, sides)
    return pool | {"exponents": exponents, "precision": precision}


def _with_densities(pool: dict[str, Any], at: int, n: int) -> dict[str, Any]:
    """With so many densities more, of which no prediction has told anything."""
    new = PRIOR_PRECISION * np.eye(len(pool["precision"]) + n)
    old = np.r_[:at, at + n : len(new)]
    new[np.ix_(old, old)] = pool["precision"]
    return pool | {"exponents": np.insert(pool["exponents"], [at] * n, 0.0), "precision": new}


def _with_memories_of_4(stored: dict[str, Any]) -> dict[str, Any]:
    """Newest samples with the pending ones for themselves, and the credits of three memories."""
    if "n_pending" not in stored:
        return stored
    first = len(stored["rows"]) - stored.pop("n_pending")
    for name in ("rows", "counts"):
        stored[f"pending_{name}"], stored[name] = stored[name][first:], stored[name][:first]
    of_all, of_memories = np.split(stored["credits"], [1])
    shorter, longer = of_memories.reshape(MEMORIES_OF_3, -1)
    return stored | {"credits": np.concatenate([of_all, shorter, 0.5 * longer, 0.5 * longer])}


def _from_3(state: dict[str, Any]) -> dict[str, Any]:
    if state.get("_class_memory") is not None:
        calibration = state["_calibration"]
        pool = calibration["pool"]
        n_groups = len(pool["exponents"]) - DISCRIMINANTS_OF_3
        if n_groups > 0:
            # What earlier rows have in the densities of memories is not known.
            new = {"pool": _with_densities(pool, n_groups, len(MEMORIES)), "replay": None}
            state["_calibration"] = calibration | new
    return state


def _with_gaussians_of_6(stored: dict[str, Any]) -> dict[str, Any]:
    """With one Gaussian of scale one for each shape, that has the credit of all three."""
    if "expert_counts" not in stored:
        return stored
    shape, counts = np.shape(stored["mixture"]["covariances"]), stored["expert_counts"]
    n_shapes, rest = divmod(len(counts), ESTIMATES_OF_5 + GAUSSIANS_OF_5)
    if len(shape) == 3 and shape[1] != shape[2] and not rest:
        estimates, gaussians = np.split(counts, [n_shapes * ESTIMATES_OF_5])
        gaussians = gaussians.reshape(n_shapes, -1)
        alike = gaussians[:, :ALIKE_OF_5].sum(axis=1, keepdims=True)
        gaussians = np.concatenate([alike, gaussians[:, ALIKE_OF_5:]], axis=1)
        stored["expert_counts"] = np.append(estimates, gaussians)
    return stored


def _with_contaminations_of_7(stored: dict[str, Any]) -> dict[str, Any]:
    """With shares of rows of which the pool told nothing, none of which has credit yet."""
    if "exponents" not in stored:
        return stored
    return stored | {"log_likelihoods": np.zeros(len(CONTAMINATIONS))}


def _from_7(state: dict[str, Any]) -> dict[str, Any]:
    """With densities in transformed coordinates, the first of those that are pooled."""
    if "_calibration" not in state:
        return state
    calibration = state["_calibration"] | {"transformation": None}
    pool, shape = calibration["pool"], np.shape(calibration["covariance"])
    n_groups = _n_groups_of_8(state)
    # Covariances of low rank have none. If it is not known yet, nothing has been learned.
    if len(shape) in (1, 2) and len({*shape}) == 1 and n_groups % SIDES_OF_8 == 0:
        pool = _with_densities(pool, 0, SIDES_OF_8)
        if n_groups == SHAPES_OF_7 * SIDES_OF_8:
            # The second shape is pooled there alone, and the third no more.
            n, sides = len(pool["precision"]), SIDES_OF_8
            kept = np.r_[:sides, 2 * sides : 3 * sides, sides : 2 * sides, 4 * sides : n]
            exponents = pool["exponents"][kept[: len(pool["exponents"]) - sides]]
            pool |= {"exponents": exponents, "precision": pool["precision"][np.ix_(kept, kept)]}
        # What earlier rows have in the new densities is not known.
        calibration |= {"pool": pool, "replay": None}
    return state | {"_calibration": calibration}


def _n_groups_of_8(state: dict[str, Any]) -> int:
    """Groups of experts that are pooled."""
    others = DISCRIMINANTS_OF_8 if state.get("_class_memory") is None else OTHERS_OF_8
    return len(state["_calibration"]["pool"]["exponents"]) - others


def _from_8(state: dict[str, Any]) -> dict[str, Any]:
    """With votes of the nearest samples, where the bandwidth is found by prediction."""
    if "_calibration" not in state:
        return state
    n_groups, pool = _n_groups_of_8(state), state["_calibration"]["pool"]
    # There is one group of each shape, and not two, if it is not.
    if n_groups > 0 and n_groups % SIDES_OF_8 == 0:
        pool = _with_densities(pool, len(pool["exponents"]), 1)
    return state | {"_calibration": state["_calibration"] | {"pool": pool}}


def _from_9(state: dict[str, Any]) -> dict[str, Any]:
    """With the scales of classes, before the votes if there are any."""
    if "_calibration" not in state:
        return state
    pool = state["_calibration"]["pool"]
    has_votes = _n_groups_of_8(state) > 1  # one of these is that of votes
    pool = _with_densities(pool, len(pool["exponents"]) - has_votes, 1)
    return state | {"_calibration": state["_calibration"] | {"pool": pool}}


def _from_10(state: dict[str, Any]) -> dict[str, Any]:
    """With logarithms of votes as they are, where the pool had a half of them."""
    if not _has_votes(state):
        return state
    pool = state["_calibration"]["pool"]
    n = len(pool["exponents"])
    unit = np.ones(len(pool["precision"]))
    unit[n - 1] = 0.5
    prior = PRIOR_PRECISION * np.eye(len(unit))
    precision = prior + (pool["precision"] - prior) / np.outer(unit, unit)
    pool = pool | {"exponents": unit[:n] * pool["exponents"], "precision": precision}
    return state | {"_calibration": state["_calibration"] | {"pool": pool}}


def _has_votes(state: dict[str, Any]) -> bool:
    """Whether a classifier of formats 10 to 15 has votes; of what was groups one is scales."""
    return "_calibration" in state and _n_groups_of_8(state) > 2


def _from_11(state: dict[str, Any]) -> dict[str, Any]:
    """With weights of features, and where there are correlations two kinds of votes."""
    if "_calibration" not in state:
        return state
    calibration = state["_calibration"] | {"feature_weights": None}
    if _has_votes(state) and np.ndim(calibration["covariance"]) == 2:
        # Those there were, by whitened distances, are the last ones.
        pool = calibration["pool"]
        calibration["pool"] = _with_densities(pool, len(pool["exponents"]) - 1, 1)
    return state | {"_calibration": calibration}


def _from_12(state: dict[str, Any]) -> dict[str, Any]:
    """With histograms of features, which stand last in the pool where there are votes."""
    if "_calibration" not in state:
        return state
    calibration = state["_calibration"] | {"histograms": None}
    if _has_votes(state):
        pool = calibration["pool"]
        calibration["pool"] = _with_densities(pool, len(pool["exponents"]), 1)
    return state | {"_calibration": calibration}


def _from_13(state: dict[str, Any]) -> dict[str, Any]:
    """With the newest rows, and votes of short memories before histograms if there are votes."""
    if "_calibration" not in state:
        return state
    calibration = state["_calibration"] | {"newest": None}
    if calibration.get("pending") is not None:
        calibration["pending"] = calibration["pending"] | {"newest": None}
    if state["_class_memory"] is not None and _has_votes(state):
        pool = calibration["pool"]
        n_before = len(pool["exponents"]) - 1
        calibration["pool"] = _with_densities(pool, n_before, VOTING_MEMORIES_OF_14)
    return state | {"_calibration": calibration}


def _with_thresholds_of_15(stored: dict[str, Any]) -> dict[str, Any]:
    """With a lower threshold, that merges nothing and shares the credit of the next one."""
    if "partitions" not in stored or len(stored["partitions"]) != THRESHOLDS_OF_14 - 1:
        return stored
    counts = stored["expert_counts"]
    n_shapes = len(counts) // EXPERTS_OF_14
    n_estimates = THRESHOLDS_OF_14 * max(n_shapes * WIDTHS_OF_14, 1)
    estimates = counts[:n_estimates].reshape(max(n_shapes, 1), THRESHOLDS_OF_14, -1)
    lowest = 0.5 * estimates[:, :1]
    estimates = np.concatenate([lowest, lowest, estimates[:, 1:]], axis=1)
    apart = np.arange(stored["n_compressed"], dtype=np.intp)
    return stored | {
        "expert_counts": np.append(estimates, counts[n_estimates:]),
        "partitions": np.concatenate([apart[None], stored["partitions"]]),
        "level": stored["level"] + 1,
    }


def _from_15(state: dict[str, Any]) -> dict[str, Any]:
    """With a sample of rows, whose votes stand before histograms if there are no memories."""
    if "_calibration" not in state:
        return state
    calibration = state["_calibration"] | {"sample": None}
    if state["_class_memory"] is None and _has_votes(state):
        pool = calibration["pool"]
        calibration["pool"] = _with_densities(pool, len(pool["exponents"]) - 1, 1)
    return state | {"_calibration": calibration}


def _with_details_of_17(stored: dict[str, Any]) -> dict[str, Any]:
    """With the covariances of details that are no Diracs alone."""
    if "detail_covariances" not in stored:
        return stored
    merged, covariances = merged_details(stored["detail_covariances"])
    return stored | {"details_merged": merged, "detail_covariances": covariances}


def _from_17(state: dict[str, Any]) -> dict[str, Any]:
    """With no steady pool yet: it is made when the next rows are predicted."""
    if "_calibration" not in state:
        return state
    return state | {"_calibration": state["_calibration"] | {"steady": None}}


def _from_18(state: dict[str, Any]) -> dict[str, Any]:
    """With densities of low rank in transformed coordinates; of others those of one shape stay."""
    if "_calibration" not in state:
        return state
    calibration = state["_calibration"]
    pool, shape = calibration["pool"], np.shape(calibration["covariance"])
    without_memories = state["_class_memory"] is None
    n_others = OTHERS_OF_18 if without_memories else OTHERS_WITH_MEMORIES_OF_18
    n_groups = len(pool["exponents"]) - n_others
    # If the covariance is not known yet, nothing has been learned.
    if len(shape) == 2 and shape[0] != shape[1] and n_groups > 0:
        kept = np.r_[:SIDES_OF_8, n_groups : len(pool["precision"])]
        exponents = pool["exponents"][kept[: SIDES_OF_8 + n_others]]
        of_one = {"exponents": exponents, "precision": pool["precision"][np.ix_(kept, kept)]}
        pool = _with_densities(pool | of_one, 0, TRANSFORMED_SINCE_18 * SIDES_OF_8)
        # What earlier rows have in the new densities is not known.
        calibration = calibration | {"pool": pool, "steady": None, "replay": None}
    return state | {"_calibration": calibration}


def _from_19(state: dict[str, Any]) -> dict[str, Any]:
    """With votes by wide kernels, which stand after those by narrow ones of the same voters."""
    if "_calibration" not in state:
        return state
    calibration, has_memories = state["_calibration"], state["_class_memory"] is not None
    pool, shape = calibration["pool"], np.shape(calibration["covariance"])
    n = len(pool["exponents"])
    # If the covariance is not known yet, nothing has been learned.
    if shape and n > TERMS_WITHOUT_VOTES_OF_19[has_memories]:
        n_voters = DISTANCES_OF_19[len(shape) == 1] + OTHER_VOTERS_OF_19[has_memories]
        new, steady = {"pool": _with_wide_votes_of_20(pool, n_voters)}, calibration["steady"]
        if steady:
            new["steady"] = steady | {"pool": _with_wide_votes_of_20(steady["pool"], n_voters)}
        calibration = calibration | new
    return state | {"_calibration": calibration}


def _from_20(state: dict[str, Any]) -> dict[str, Any]:
    """With histograms of all samples, which stand last; those there were are of a short memory.

    With short memories a sample of rows votes, too, by two kernels; that stands before histograms.
    """
    if "_calibration" not in state:
        return state
    calibration, has_memories = state["_calibration"], state["_class_memory"] is not None
    histograms, pool, new = calibration["histograms"], calibration["pool"], {}
    if histograms:
        new["histograms"] = histograms | {"counts": np.stack(2 * [histograms["counts"]])}
    n = len(pool["exponents"])
    # As where there are votes.
    if np.shape(calibration["covariance"]) and n > TERMS_WITHOUT_VOTES_OF_19[has_memories]:
        n_votes, steady = 2 * has_memories, calibration["steady"]
        new["pool"] = _with_terms_of_21(pool, n_votes)
        if steady:
            new["steady"] = steady | {"pool": _with_terms_of_21(steady["pool"], n_votes)}
    return state | {"_calibration": calibration | new}


def _with_fading_of_22(stored: dict[str, Any]) -> dict[str, Any]:
    """Newest samples without a model that fades, which begins with the next prediction."""
    return stored | {"fading": None} if "pending_rows" in stored else stored


def _with_width_of_23(stored: dict[str, Any]) -> dict[str, Any]:
    """With the narrowest of five widths where there were four; what was narrow still is."""
    if "partitions" not in stored or len(stored["partitions"]) != THRESHOLDS_OF_22 - 1:
        return stored
    counts = stored["expert_counts"]
    n_shapes = len(counts) // (THRESHOLDS_OF_22 * WIDTHS_OF_22)
    estimates, others = np.split(counts, [n_shapes * THRESHOLDS_OF_22 * WIDTHS_OF_22])
    # If the bandwidth is not predicted, there are no more than the thresholds.
    estimates = np.insert(estimates.reshape(-1, WIDTHS_OF_22), 0, CREDIT, axis=1)
    return stored | {"expert_counts": np.append(estimates, others)}


def _with_terms_of_21(pool: dict[str, Any], n_votes: int) -> dict[str, Any]:
    """With so many votes before the last term, and another one after it."""
    n = len(pool["exponents"])
    return _with_densities(_with_densities(pool, n, 1), n - 1, n_votes)


def _with_wide_votes_of_20(pool: dict[str, Any], n_voters: int) -> dict[str, Any]:
    """With one more vote of each of the voters, whose votes stand before histograms."""
    last = len(pool["exponents"]) - 1  # of histograms
    for place in range(last, last - n_voters, -1):
        pool = _with_densities(pool, place, 1)
    return pool
