"""Slow, plain twins of the compiled functions, and what several test files share.

Every twin turns what it is given into full covariance matrices (a diagonal one by np.diag, a
Dirac's is zero) and then follows the formula, so that one code serves both structures.
"""

from itertools import pairwise

import numpy as np
from scipy.linalg import sqrtm
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from skokde._engine._lowrank import FEW_ROWS, N_STEPS, ROUNDING

from skokde._engine.compression import cluster as engine_cluster
from skokde._engine.compression import compress as engine_compress
from skokde._engine.compression import merge as engine_merge
from skokde._engine.covariance import STRUCTURES
from skokde._engine.experts import empty_state
from skokde._engine.learn import learn
from skokde._engine.state import Settings
from skokde._validation import check_bandwidth
from skokde.distribution import GaussianMixtureDistribution

# ---------------------------------------------------------------------------- representations


def matrices(flat, d, k=None, rest=0.0):
    """(m, d * d) or (m, d) flattened matrices as (k, d, d); `rest` times I for those after m."""
    flat = np.asarray(flat)
    k = len(flat) if k is None else k
    out = np.array([rest * np.eye(d) for _ in range(k)]).reshape(k, d, d)
    for i in range(len(flat)):
        out[i] = flat[i].reshape(d, d) if flat.shape[1] == d * d else np.diag(flat[i])
    return out


def flattened(full, size):
    """The reverse of `matrices`: (n, d, d) as (n, size), off-diagonals dropped if size is d."""
    full = np.asarray(full)
    d = full.shape[-1]
    if size == d:
        return np.array([np.diag(matrix) for matrix in full]).reshape(len(full), d)
    return full.reshape(len(full), d * d)


def log_pdf(points, mean, covariance):
    return np.atleast_1d(multivariate_normal(mean, covariance).logpdf(points))


def mixture_log_pdf(points, weights, means, covariances):
    """Log-densities of a mixture of Gaussians; covariances (k, d, d) or (k, d)."""
    points = np.asarray(points)
    covariances = np.asarray(covariances)
    if covariances.ndim == 2:
        covariances = [np.diag(c) for c in covariances]
    terms = [
        np.log(w) + log_pdf(points, mean, covariance)
        for w, mean, covariance in zip(weights, means, covariances, strict=True)
    ]
    return logsumexp(terms, axis=0).reshape(len(points))


def moments(weights, means, covariances):
    """Total weight, mean and covariance of a mixture; covariances (k, d, d)."""
    # Differences first: a large offset must not cost the reference its digits.
    origin = means[0]
    shifted = means - origin
    total = weights.sum()
    divisor = total or 1.0  # components that count nothing have the first mean, and no spread
    mean = sum(w * x for w, x in zip(weights, shifted, strict=True)) / divisor
    covariance = (
        sum(
            w * (c + np.outer(x - mean, x - mean))
            for w, x, c in zip(weights, shifted, covariances, strict=True)
        )
        / divisor
    )
    return total, origin + mean, covariance


def full_covariances(covariances):
    """(k, d, d), (k, d) or, of low rank, (k, 1 + r, d) covariances as (k, d, d)."""
    if covariances.ndim == 3 and covariances.shape[1] != covariances.shape[2]:
        out = np.array([directions.T @ directions for directions in covariances[:, 1:]])
        out = out.reshape(-1, *2 * covariances.shape[2:])
        for matrix, variances in zip(out, covariances[:, 0], strict=True):
            np.fill_diagonal(matrix, variances)
        return out
    if covariances.ndim == 3:
        return covariances
    return np.array([np.diag(c) for c in covariances]).reshape(*covariances.shape, -1)


# ------------------------------------------------------------------------------------- inputs


def random_components(d, covariance_type, kind, k=8, *, seed=0, all_covs=False):
    """Weights, means and flattened covariances of k components, the compounds first.

    `kind` is "diracs", "compounds", "mixed" or "thin": half of them compounds of ranks from one to
    just beyond what the compiled functions take for thin. Covariances of the compounds only, or of
    all.
    """
    rng = np.random.default_rng([seed, d, len(kind)])
    m = {"diracs": 0, "compounds": k, "mixed": k // 2, "thin": k // 2}[kind]
    ranks = np.full(m, d)
    if kind == "thin":
        ranks = np.resize([1, d // 2, d // 2 + 1, 2], m)
    covs = np.zeros((k, d, d))
    for i in range(m):
        root = rng.normal(size=(d, ranks[i]))
        covs[i] = root @ root.T * rng.uniform(0.1, 2.0)
    flat = flattened(covs, d if covariance_type == "diag" else d * d)
    weights = rng.uniform(0.2, 1.0, size=k)
    return weights / weights.sum(), 1.5 * rng.normal(size=(k, d)), flat if all_covs else flat[:m]


def clumps(d, n, *, seed=0, n_clumps=3, apart=3.0):
    """Rows from a few correlated clumps."""
    rng = np.random.default_rng([seed, d])
    centers = apart * rng.normal(size=(n_clumps, d))
    roots = rng.normal(size=(n_clumps, d, d)) / np.sqrt(d)
    which = rng.integers(n_clumps, size=n)
    return centers[which] + np.einsum("nij,nj->ni", roots[which], rng.normal(size=(n, d)))


def settings_of(
    covariance_type, d, *, threshold=0.1, bandwidth="plugin", forgetting=1.0, target=None
):
    """The engine's settings of one threshold; `bandwidth` is what the estimators take."""
    structure = STRUCTURES[covariance_type]
    return Settings(
        structure,
        check_bandwidth(bandwidth, structure, d),
        np.array([threshold]),
        forgetting,
        max_components=None,
        most_components=None,
        most_compounds=None,
        shapes=(structure,),
        shrinkage_target=target,
    )


def learned_mixture(X, covariance_type, **parameters):
    """The sample model of a stream, with whatever compressions fell due."""
    d = X.shape[1]
    settings = settings_of(covariance_type, d, **parameters)
    state = learn(empty_state(d, settings), np.ascontiguousarray(X), np.ones(len(X)), settings)
    return state.mixture


def kernel_frame(mixture, covariance_type, bandwidth="plugin"):
    """The kernel coordinates of a mixture; `bandwidth` is what the estimators take."""
    structure = STRUCTURES[covariance_type]
    rule = check_bandwidth(bandwidth, structure, mixture.n_features)
    return rule.kernel_frame(mixture, structure)


def compressed(mixture, kernel, threshold, max_components=None):
    """What a compression by one threshold leaves; there are no partitions then."""
    new, partitions, level = engine_compress(
        mixture, kernel, np.array([threshold]), most=max_components
    )
    assert partitions.shape == (0, new.n_components)
    assert level == 0
    return new


def merged(mixture, labels, kernel):
    """The mixture with the clusters of one row of labels merged."""
    labels = np.asarray(labels, dtype=np.intp)
    new, members = engine_merge(mixture, labels, kernel)
    # Each component is of a cluster of its own; what is alone has kept its place in the data.
    assert sorted(labels[members]) == list(range(new.n_components))
    for label, member in zip(labels[members], members, strict=True):
        assert member == np.flatnonzero(labels == label)[0]
    return new


def clustered(components, threshold, first_cut, max_clusters=None, feature_axes=None):
    """The labels (k,) of one threshold."""
    (labels,) = engine_cluster(
        components, np.array([threshold]), first_cut, max_clusters, feature_axes
    )
    return labels


# -------------------------------------------------------------------------------------- twins


def quantile(values, counts, level):
    order = np.argsort(values)
    below = np.cumsum(counts[order])
    return values[order][np.argmax(below >= level * counts.sum())]


def inliers(counts, means, covs, tail, n_deviations, farthest):
    k, d = means.shape
    deviations = np.array([np.sqrt(np.diag(cov)) for cov in matrices(covs, d, k)])
    radii = np.zeros(k)
    for x, s in zip(means.T, deviations.T, strict=True):
        points, halves = np.concatenate([x - s, x + s]), np.tile(counts / 2.0, 2)
        low, middle, high = (quantile(points, halves, q) for q in (tail, 0.5, 1.0 - tail))
        if high > low:
            far = (np.abs(x - middle) + s) / ((high - low) / n_deviations)
            if far.max() > farthest:
                radii = np.maximum(radii, far)
    return radii <= farthest * max(1.0, quantile(radii, counts, 1.0 - tail))


def all_details(detail_means, details_merged, detail_covs):
    """Means and covariances (2 m, ...) of all details, one after the other."""
    covs = np.zeros((details_merged.size, detail_covs.shape[1]))
    covs[details_merged.ravel() > 0] = detail_covs
    return detail_means.reshape(len(covs), detail_means.shape[2]), covs


def merge(labels, counts, means, covs, detail_weights, *others):
    *details, center, spread, matrix, axis, feature_axes = others
    frame = center, spread, matrix
    (m, size), d = covs.shape, means.shape[1]
    total = counts.sum()
    detail_means, detail_covs = all_details(*details)
    detail_means = np.concatenate([detail_means, means[m:]])
    old, new = ([], []), ([], [])  # compounds, then Diracs
    for label in range(labels.max() + 1):
        members = np.flatnonzero(labels == label)
        compounds = members[members < m]
        details = np.append(
            np.stack([2 * compounds, 2 * compounds + 1], axis=1), members[len(compounds) :] + m
        )
        detail_counts = np.append(
            counts[compounds, None] * detail_weights[compounds], counts[members[len(compounds) :]]
        )
        parts = detail_means[details], detail_covs[details[details < 2 * m]]
        if len(members) == 1:
            i = members[0]
            kept = i, counts[i], means[i]
            if i < m:
                kept += covs[i], detail_weights[i], *parts
            old[int(i >= m)].append(kept)
            continue
        count, mean, cov = (
            array[0]
            for array in match_group_moments(counts, means, covs, members, [0, len(members)])
        )
        if not cov.any():
            new[1].append((members[0], count, mean))
            continue
        inside = points_in(parts[0], *frame), covariances_in(parts[1], *frame)
        everything = np.arange(len(details))
        start = axis if len(members) == len(counts) else None
        sides = two_means(everything, detail_counts / total, *inside, start, feature_axes)
        starts = [0, len(sides[0]), len(details)]
        sides = match_group_moments(detail_counts, *parts, np.concatenate(sides), starts)
        new[0].append((members[0], count, mean, cov, sides[0] / sides[0].sum(), *sides[1:]))
    compounds, diracs = old[0] + new[0], old[1] + new[1]
    arrays = [np.array([part[i] for part in compounds + diracs]) for i in range(3)]
    for i, shape in enumerate([(size,), (2,), (2, d), (2, size)], 3):
        arrays.append(np.array([part[i] for part in compounds]).reshape(-1, *shape))
    *arrays, of_details = arrays
    merged = of_details.any(axis=2)
    return *arrays, merged, of_details[merged]


def points_in(X, center, spread, matrix):
    near = np.clip((X - center) / spread, -1e160, 1e160)
    return near @ matrices(matrix[None], len(center))[0]


def covariances_in(covs, center, spread, matrix):
    # Deviations first: their squares may overflow, and are made smaller where they would.
    full = matrices(covs, len(center))
    deviations = np.sqrt(np.diagonal(full, axis1=1, axis2=2))
    safe = np.where(deviations > 0.0, deviations, 1.0)
    correlations = full / safe[:, :, None] / safe[:, None, :]
    factors = (deviations / spread)[:, :, None] * matrices(matrix[None], len(center))[0]
    with np.errstate(over="ignore", invalid="ignore"):
        trace = np.einsum("nij,nik,nkj->n", factors, correlations, factors)
    widest = (deviations / spread).max(axis=1, initial=0.0)
    narrower = np.where(trace < 1e300, 1.0, 1e140 / np.where(widest > 0.0, widest, 1.0))
    factors *= narrower[:, None, None]
    return flattened(factors.transpose(0, 2, 1) @ correlations @ factors, covs.shape[1])


def detail_errors(weights, means, covs, detail_weights, *others):
    *details, center, spread, matrix, low = others
    frame = center, spread, matrix
    _, detail_covs = all_details(*details)
    detail_means = details[0]
    errors = np.sqrt(weights[: len(covs)])
    for i in np.flatnonzero(errors > low):
        errors[i] *= hellinger(
            detail_weights[i],
            points_in(detail_means[i], *frame),
            covariances_in(detail_covs[2 * i : 2 * i + 2], *frame),
            np.ones(1),
            points_in(means[[i]], *frame),
            covariances_in(covs[[i]], *frame),
        )
    return errors


def standardize(center, cov, smallest):
    d = len(center)
    full = matrices(cov, d)[0]
    spread = np.sqrt(np.diag(full) * (np.diag(full) > smallest))
    constant = spread <= np.finfo(float).eps * np.abs(center)
    size = np.abs(center)
    substitute = 0.1 * np.where(size > np.sqrt(smallest), size, 1.0)
    spread = np.where(constant, substitute, spread)
    factor = np.where(constant, 0.0, 1.0 / spread)
    correlation = full * np.outer(factor, factor)
    filled = correlation + np.diag(constant)
    return spread, *(flattened(c[None], cov.shape[1]) for c in (correlation, filled))


def whitening_roots(correlation, floor, share):
    eigenvalues, vectors = np.linalg.eigh(correlation)
    valid = eigenvalues >= floor * eigenvalues.max()
    eigenvalues = np.where(valid, eigenvalues, share * eigenvalues[valid].mean())
    scale = np.sqrt(eigenvalues)
    return (vectors * scale) @ vectors.T, (vectors / scale) @ vectors.T, np.log(eigenvalues).sum()


def match_group_moments(counts, means, covs, order, starts):
    d, size = means.shape[1], covs.shape[1]
    full = matrices(covs, d, len(counts))
    groups = [order[a:b] for a, b in pairwise(starts)]
    out = [moments(counts[g], means[g], full[g]) for g in groups]
    return (
        np.array([count for count, _, _ in out]),
        np.array([mean for _, mean, _ in out]).reshape(-1, d),
        flattened(np.array([c for _, _, c in out]).reshape(-1, d, d), size),
    )


def leading_directions(rows, n, combinations):
    rows = rows[rows.any(axis=1)]
    (k, d), q = rows.shape, combinations.shape[1]
    out = np.zeros((n, d))
    if k == 0:
        return out
    towards = combinations.ravel()[:k] @ rows
    if k > min(d, FEW_ROWS * q) and d > q:
        basis = rows @ rows.T @ combinations[:k]
        for _ in range(N_STEPS):
            basis = np.linalg.qr(rows @ rows.T @ basis)[0]
        rows = basis.T @ rows
    _, lengths, directions = np.linalg.svd(rows, full_matrices=False)
    rank = min(n, np.count_nonzero(lengths**2 > ROUNDING * lengths[0] ** 2))
    out[:rank] = (lengths[:, None] * directions)[:rank]
    return np.where(out @ towards < 0.0, -1.0, 1.0)[:, None] * out


def group_covariances(counts, means, covs, order, starts, totals, centers, variances, combinations):
    m, rank = len(covs), covs.shape[1] - 1
    out = np.zeros((len(totals), *covs.shape[1:]))
    out[:, 0] = variances
    for group, members in enumerate(np.split(order, starts[1:-1])):
        if len(members) == 1:
            out[group, 1:] = covs[members[0], 1:] if members[0] < m else 0.0
            continue
        shares = counts[members] / totals[group] if totals[group] > 0.0 else 0.0 * counts[members]
        rows = [
            np.sqrt(s) * (means[i] - centers[group]) for s, i in zip(shares, members, strict=True)
        ]
        for share, i in zip(shares, members, strict=True):
            rows += list(np.sqrt(share) * covs[i, 1:]) if i < m else []
        scale = np.sqrt(np.where(variances[group] > 0.0, variances[group], 1.0))
        found = leading_directions(np.array(rows) / scale, rank, combinations[: len(rows)])
        out[group, 1:] = found * scale
    return out


def analyser_factors(precisions, directions, shared):
    of_all = [np.concatenate([shared, own]) for own in directions]
    lower = [
        np.linalg.cholesky(np.eye(len(a)) + (a * p) @ a.T)
        for a, p in zip(of_all, precisions, strict=True)
    ]
    inverses = [np.linalg.inv(root) for root in lower]
    projections = [i @ (a * p) for i, a, p in zip(inverses, of_all, precisions, strict=True)]
    log_dets = [np.linalg.slogdet(root @ root.T)[1] for root in lower]
    return np.array(projections), np.array(inverses), np.array(log_dets)


def analyser_log_densities(X, means, precisions, projections, bases):
    out = np.empty((len(means), len(X)))
    for i, mean in enumerate(means):
        for j, row in enumerate(X):
            squares = precisions[i] @ (row - mean) ** 2
            explained = np.sum((projections[i] @ (row - mean)) ** 2)
            out[i, j] = bases[i] - 0.5 * max(squares - explained, 0.0)
    return out


def append_rows(counts, means, n_components, n_compounds, rows, weights, f):
    """As the compiled one, but returns new lists: counts, means and the number of rows read."""
    capacity = len(counts)
    held = [[counts[i], tuple(means[i])] for i in range(n_components)]
    for n, (row, w) in enumerate(zip(rows, weights, strict=True)):
        same = [component for component in held[n_compounds:] if component[1] == tuple(row)]
        if not same and len(held) == capacity:
            return [c for c, _ in held], [x for _, x in held], n
        for component in held:
            component[0] *= f**w
        gain = w if f == 1.0 else (1.0 - f**w) / (1.0 - f)
        if same:
            same[0][0] += gain
        else:
            held.append([gain, tuple(row)])
    return [c for c, _ in held], [x for _, x in held], len(rows)


def age_class_counts(counts, labels, weights, f):
    counts = list(counts)
    for label, w in zip(labels, weights, strict=True):
        counts = [c * f**w for c in counts]
        counts[label] += w if f == 1.0 else (1.0 - f**w) / (1.0 - f)
    return counts


def update_class_memories(
    counts, weights, labels, row_weights, factors, first_weights, fixed_share, most
):
    """Counts of classes, and weights of memories by the probabilities of the labels to come."""
    counts, weights = counts.copy(), np.array(weights)
    for label, w in zip(labels, row_weights, strict=True):
        whole = int(min(w, most))
        parts = [1.0] * whole + ([w - whole] if w > whole else [])
        for number, part in enumerate(parts):
            n_seen = len({*np.flatnonzero(counts[0]), label})
            proba = (counts + 1.0 / n_seen) / (counts.sum(axis=1, keepdims=True) + 1.0)
            if number < most:
                weights = weights * proba[:, label] ** part
            weights = (1.0 - fixed_share) * weights / weights.sum() + fixed_share * first_weights
            counts = np.array(
                [
                    age_class_counts(row, [label], [part], f)
                    for row, f in zip(counts, factors, strict=True)
                ]
            )
    return counts, weights


def roughness(weights, means, covs, pilot, printed):
    """R(p, F, G) with F = I, by the printed or the right bracket, over a pilot kernel's peak."""
    k, d = means.shape
    S = matrices(covs, d, k)
    F, G = np.eye(d), pilot * np.eye(d)
    total = 0.0
    for i in range(k):
        for j in range(k):
            A = np.linalg.inv(G + S[i] + S[j])
            D = means[i] - means[j]
            if printed:
                m = D @ A @ D
                bracket = 2.0 * np.trace(F @ F @ A @ A) * (1.0 - 2.0 * m)
                bracket += np.trace(F @ A) ** 2 * (1.0 - m) ** 2
            else:
                B = A @ (np.eye(d) - 2.0 * np.outer(D, D) @ A)
                C = A @ (np.eye(d) - np.outer(D, D) @ A)
                bracket = 2.0 * np.trace(F @ A @ F @ B) + np.trace(F @ C) ** 2
            pdf = np.exp(log_pdf(D, np.zeros(d), G + S[i] + S[j])[0])
            total += weights[i] * weights[j] * pdf * bracket
    return total * (2.0 * np.pi * pilot) ** (d / 2)


def sigma_points(mean, root):
    """Sigma points and weights: +- along each column of the root, then the mean if it counts."""
    d = len(mean)
    kappa = max(0, 3 - d)
    points, weights = [], []
    for column in root.T:
        for sign in (1.0, -1.0):
            points.append(mean + sign * np.sqrt(d + kappa) * column)
            weights.append(0.5 / (d + kappa))
    if kappa > 0:
        points.append(mean)
        weights.append(kappa / (d + kappa))
    return np.array(points), np.array(weights)


def hellinger(weights1, means1, covs1, weights2, means2, covs2):
    """Eqs. 13 and 14, in plain densities: the sigma points are those of p0 = (p1 + p2) / 2."""
    d = means1.shape[1]
    smoothed = [matrices(c, d) + np.eye(d) for c in (covs1, covs2)]
    mixtures = [(weights1, means1, smoothed[0]), (weights2, means2, smoothed[1])]
    total = 0.0
    for weights, means, covariances in mixtures:
        for w, mean, covariance in zip(weights, means, covariances, strict=True):
            points, sigma_weights = sigma_points(mean, np.real(sqrtm(covariance)))
            p1, p2 = (
                sum(w * np.exp(log_pdf(points, m, c)) for w, m, c in zip(*mixture, strict=True))
                for mixture in mixtures
            )
            p0 = 0.5 * (p1 + p2)
            g = (np.sqrt(p1) - np.sqrt(p2)) ** 2 / p0
            total += 0.5 * w * (sigma_weights @ g)
    return np.sqrt(0.5 * total)


def local_error(members, weights, means, covs):
    """Hellinger distance of the members to their Gaussian, times the root of their mass."""
    d = means.shape[1]
    full = matrices(covs, d, len(means))[members]
    mass, mean, covariance = moments(weights[members], means[members], full)
    if covs.shape[1] == d:
        covariance = np.diag(np.diag(covariance))
    distance = hellinger(
        weights[members] / mass,
        means[members],
        full.reshape(-1, d * d),
        np.ones(1),
        mean[None],
        covariance.reshape(1, d * d),
    )
    return np.sqrt(mass) * distance


def factorize_all(covs, d):
    smoothed = matrices(covs, d) + np.eye(d)
    roots = np.array([np.real(sqrtm(c)) for c in smoothed]).reshape(-1, d, d)
    inv_roots = np.array([np.linalg.inv(root) for root in roots]).reshape(-1, d, d)
    log_dets = np.array([np.linalg.slogdet(c)[1] for c in smoothed])
    size = covs.shape[1]
    return flattened(inv_roots, size), flattened(roots, size), log_dets


def principal_axis(covariance):
    """Leading eigenvector times the root of its eigenvalue, its largest entry positive.

    Where several are as long, the projection of the feature that is the longest part of one.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    leading = vectors[:, eigenvalues >= (1.0 - 1e-6) * eigenvalues[-1]]
    lengths = np.linalg.norm(leading, axis=1)
    lead = np.argmax(lengths >= (1.0 - 1e-8) * lengths.max())
    return np.sqrt(eigenvalues[-1]) * leading @ leading[lead] / lengths[lead]


def widest_gap(weights, points, center):
    explained = []
    for x, middle in zip(points.T, center, strict=True):
        share, moment = ((weights * part)[x > middle].sum() for part in (1.0, x - middle))
        explained.append(moment**2 / (share * (1.0 - share)) if share > 0.0 else 0.0)
    return np.eye(len(center))[np.argmax(explained)]


def nearly_principal_axis(covariance, diagonal):
    """Where power iteration from the largest variance's row comes to rest, or near it."""
    following = covariance[np.argmax(np.diag(covariance))]
    for _ in range(0 if diagonal else 64):
        axis = following / np.linalg.norm(following)
        following = covariance @ axis
        if axis @ following > np.sqrt(1.0 - 1e-8) * np.linalg.norm(following):
            break
    return following


def principal_axes(covs, d):
    return np.array([principal_axis(c) for c in matrices(covs, d)]).reshape(-1, d)


def kl(mean1, covariance1, mean2, covariance2):
    """KL(N1 || N2)."""
    precision = np.linalg.inv(covariance2)
    delta = mean2 - mean1
    return 0.5 * (
        np.trace(precision @ covariance1)
        + delta @ precision @ delta
        - len(mean1)
        + np.linalg.slogdet(covariance2)[1]
        - np.linalg.slogdet(covariance1)[1]
    )


def sub_gaussian(members, weights, means, covs):
    """Mean and covariance + I of the members together."""
    d = means.shape[1]
    full = matrices(covs, d, len(means))[members]
    _, mean, covariance = moments(weights[members], means[members], full)
    if covs.shape[1] == d:
        covariance = np.diag(np.diag(covariance))
    return mean, covariance + np.eye(d)


def split_cost(sides, weights, means, covs):
    """Goldberger's cost of clusters: weighted KL(component || cluster)."""
    smoothed = matrices(covs, means.shape[1], len(means)) + np.eye(means.shape[1])
    return sum(
        weights[i] * kl(means[i], smoothed[i], *sub_gaussian(side, weights, means, covs))
        for side in sides
        for i in side
    )


def are_above(places):
    """Which places are above their mean, by more than rounding."""
    return places > 1e-9 * np.abs(places).max()


def explained_share(weights, places):
    """Of the variance of places about their mean, by halves that are cut there."""
    above = are_above(places)
    share, moment = weights[above].sum() / weights.sum(), weights[above] @ places[above]
    square = weights @ places**2 * weights.sum()
    return moment**2 / (share * (1.0 - share)) / square if 0.0 < share < 1.0 else 0.0


def best_clusters(members, weights, means, covs, labels):
    d = means.shape[1]
    if labels.all() or not labels.any():
        labels = np.arange(len(members)) > 0
    components = matrices(covs, d, len(means)) + np.eye(d)
    for _ in range(100):
        gaussians = [
            sub_gaussian(side, weights, means, covs) for side in (members[~labels], members[labels])
        ]
        costs = np.array([[kl(means[i], components[i], *g) for g in gaussians] for i in members])
        proposal = costs[:, 1] < costs[:, 0]
        if np.array_equal(proposal, labels) or proposal.all() or not proposal.any():
            break
        labels = proposal
    return members[~labels], members[labels]


def two_means(members, weights, means, covs, start=None, feature_axes=None):
    d = means.shape[1]
    members = np.asarray(members)
    if len(members) == 2:
        return members[:1], members[1:]
    mean, smoothed = sub_gaussian(members, weights, means, covs)
    diagonal = covs.shape[1] == d
    axis = nearly_principal_axis(smoothed - np.eye(d), diagonal) if start is None else start
    along = (means[members] - mean) @ axis
    sides = best_clusters(members, weights, means, covs, along > 0.0)
    if feature_axes is None:
        return sides
    axes = np.eye(d) if diagonal else feature_axes.reshape(d, d)
    deviations, of_members = means[members] - mean, weights[members]
    variances = of_members @ (deviations @ axes.T) ** 2 / of_members.sum() / (axes**2).sum(axis=1)
    shares = np.array([explained_share(of_members, deviations @ feature) for feature in axes])
    shares[variances <= 1e-8] = 0.0
    if shares.max() <= 1.01 * explained_share(of_members, along):
        return sides
    lead = np.argmax(np.where(shares > (1.0 - 1e-8) * shares.max(), variances, 0.0))
    others = best_clusters(members, weights, means, covs, are_above(deviations @ axes[lead]))
    if shares[lead] >= 0.9 and variances[lead] >= 1.0:
        return others
    cost, other = (split_cost(of, weights, means, covs) for of in (sides, others))
    return others if other < cost * (1.0 - 1e-8) else sides


def cluster(weights, means, covs, threshold, axis, max_clusters=None, feature_axes=None):
    """Section 2.6 as it is written: always split the cluster with the largest error."""
    everything = np.arange(len(weights))
    leaves = [everything]
    while True:
        errors = [
            local_error(leaf, weights, means, covs) if len(leaf) > 1 else 0.0 for leaf in leaves
        ]
        worst = int(np.argmax(errors))
        if errors[worst] <= threshold or len(leaves) == max_clusters:
            return leaves
        leaf = leaves.pop(worst)
        start = axis if leaf is everything else None
        leaves += two_means(leaf, weights, means, covs, start, feature_axes)


def labels_of(clusters):
    """The number of each component's cluster, in the order of their first members."""
    labels = np.empty(sum(len(members) for members in clusters), dtype=np.intp)
    for number, members in enumerate(sorted(clusters, key=min)):
        labels[members] = number
    return labels


def clusters_of(labels):
    """Arrays of component numbers."""
    return [np.flatnonzero(labels == number) for number in range(labels.max() + 1)]


def kernel_weights(kde):
    """What each kernel counts in a KDE of one shape, and each single Gaussian."""
    out = np.zeros(len(kde.families[0].kernels.widths))
    for family, held in zip(kde.families, kde.weights, strict=True):
        of_family = family.masses @ held[0]
        out[: len(of_family)] += of_family
    return out


def densities_of(kde, points):
    """Log-densities (n, n_densities) of all that count, and their weights, in groups, too."""
    logs, weights = [], []
    for family, held in zip(kde.families, kde.weights, strict=True):
        part, width = np.nonzero(held[0])
        alone = np.zeros((len(part), *held[0].shape))
        alone[range(len(part)), part, width] = 1.0 / family.masses[part]
        logs.append(family.log_mixtures(points, alone))
        weights.append(held[:, part, width] * family.masses[part])
    return np.concatenate(logs, axis=1), np.concatenate(weights, axis=1)


def log_mixtures(logs, weights):
    """Log-densities (n, n_mixtures) of mixtures, by weights (n_mixtures, n_densities)."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    return np.logaddexp.reduce(logs[:, None] + log_weights, axis=2)


def log_densities(points, log_weights, means, covs, widths, shrinks):
    """Of mixtures of N(a mu_i, a^2 (S_i + b^2 I))."""
    d = means.shape[1]
    covs = matrices(covs, d, len(means))
    columns = [
        mixture_log_pdf(points, np.exp(log_weights), a * means, a**2 * (covs + b**2 * np.eye(d)))
        for a, b in zip(shrinks, widths, strict=True)
    ]
    return np.column_stack(columns)


# ------------------------------------------------------------------------------- quadrature


def pooled_within_covariance(X, y, *, keeps_noise=False):
    """The prior for the covariance of a class, from the rows, full or not."""
    n, d = X.shape
    within = sum((y == c).sum() * np.cov(X[y == c].T, bias=True).reshape(d, d) for c in set(y)) / n
    whole = np.cov(X.T, bias=True).reshape(d, d)
    if not keeps_noise and not (n >= 2 * d and has_flat_direction(whole)):
        whole = without_noise(whole, n)
    return (n * within + d * whole) / (n + d)


def has_flat_direction(covariance):
    """Whether that is true beyond features that are constant."""
    kept = np.diag(covariance) > 0.0
    deviations = np.sqrt(np.diag(covariance)[kept])
    eigenvalues = np.linalg.eigvalsh(
        covariance[np.ix_(kept, kept)] / np.outer(deviations, deviations)
    )
    return len(eigenvalues) > 0 and eigenvalues.min() < 1e-9 * eigenvalues.max()


def without_noise(covariance, n, part=1.0):
    """Of n samples, without a part of what oracle approximating shrinkage (Chen et al. 2010) of the
    correlations leaves out."""
    d = len(covariance)
    if d == 1:
        return covariance
    deviations = np.sqrt(np.diag(covariance))
    units = np.where(deviations > 0.0, deviations, 1.0)
    correlations = covariance / np.outer(units, units)
    others = ~np.eye(d, dtype=bool)
    square = d + (correlations[others] ** 2).sum()
    noise = ((1.0 - 2.0 / d) * square + d**2) / ((n + 1.0 - 2.0 / d) * (square - d))
    return np.where(others, (1.0 - part * min(noise, 1.0)) * covariance, covariance)


def of_kernels(covariance, n):
    """What kernels have that are shrunk to nothing else, of a covariance of n samples."""
    d = len(covariance)
    part = (d / (n + d)) ** 3
    if part <= 2e-3 or (n >= 2 * d and has_flat_direction(covariance)):
        return covariance
    return without_noise(covariance, n, part)


def shrunk_prior(counts):
    """What the shares of classes would be, if chance has made them differ (James and Stein)."""
    counts = np.asarray(counts, dtype=float)
    n, k = counts.sum(), len(counts)
    shares = counts / n
    variances = shares * (1.0 - shares) / max(n - 1.0, 1e-300)
    away = ((shares - 1.0 / k) ** 2).sum()
    part = np.clip(variances.sum() / away, 0.0, 1.0) if away > 0.0 else 1.0
    return part / k + (1.0 - part) * shares


def class_log_density(points, rows, shared, scale, covariance_type):
    """Exact KDE of a class in the classifier, whose kernels have `scale` times its spread."""
    n, d = rows.shape
    kernel = scale**2 * (n * np.cov(rows.T, bias=True).reshape(d, d) + d * shared) / (n + d)
    if covariance_type == "diag":
        kernel = np.diag(np.diag(kernel))
    return mixture_log_pdf(points, np.full(n, 1.0 / n), rows, np.tile(kernel, (n, 1, 1)))


def grid(low, high, step):
    """Points of a regular grid over a box, (n, d), and the volume of a cell.

    The trapezoidal rule on it, a plain sum, is exact to rounding for smooth functions that
    vanish at the edges once the step is below their finest detail.
    """
    axes = [
        np.linspace(a, b, int(np.ceil((b - a) / s)) + 1)
        for a, b, s in zip(low, high, np.broadcast_to(step, len(low)), strict=True)
    ]
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)), cell


def stretched_grid(weights, means, covariances, reach=6.5):
    """Points over a mixture and the volumes of their cells, which grow with the distance.

    The trapezoidal rule in u, where each coordinate is a multiple of sinh u: so that there are not
    too many points where some components are a hundred times wider than others. Components of no
    weight to speak of need not be resolved.
    """
    covariances = full_covariances(covariances)
    center = weights @ means
    total = moments(weights, means, covariances)[2]
    scale = np.sqrt(np.diag(total))
    low, high = [], []
    finest = np.inf
    for mean, covariance in zip(means, covariances, strict=True):
        deviations = np.sqrt(np.diag(covariance)) / scale
        offset = (mean - center) / scale
        low.append(offset - reach * deviations)
        high.append(offset + reach * deviations)
        # A step of one standard deviation, where a component is at its widest.
        finest = min(
            finest,
            np.sqrt(np.linalg.eigvalsh(covariance / np.outer(scale, scale))[0])
            / np.hypot(1.0, np.abs(offset).max() + 2.0 * deviations.max()),
        )
    u, cell = grid(np.arcsinh(np.min(low, axis=0)), np.arcsinh(np.max(high, axis=0)), finest)
    return center + scale * np.sinh(u), cell * np.prod(scale * np.cosh(u), axis=1)


def grid_over(mixtures, step, reach=8.0):
    """A grid that holds the mixtures' components to `reach` standard deviations."""
    means = np.concatenate([means for _, means, _ in mixtures])
    variances = [np.diagonal(covariances, axis1=1, axis2=2) for _, _, covariances in mixtures]
    deviations = np.sqrt(np.concatenate(variances))
    low = np.min(means - reach * deviations, axis=0)
    high = np.max(means + reach * deviations, axis=0)
    return grid(low, high, step)


def true_hellinger(mixture1, mixture2, step):
    """Hellinger distance by numerical integration; weights, means, covariances (k, d, d) each."""
    points, cell = grid_over([mixture1, mixture2], step)
    p1, p2 = (np.exp(mixture_log_pdf(points, *mixture)) for mixture in (mixture1, mixture2))
    return np.sqrt(0.5 * cell * np.sum((np.sqrt(p1) - np.sqrt(p2)) ** 2))


# --------------------------------------------------------------------- what mixtures must keep


def mixture_moments(mixture):
    """Count, mean and covariance matrix of a sample model."""
    full = full_covariances(mixture.all_covariances())
    return moments(mixture.counts, mixture.means, full)


def assert_same_moments(got, expected, covariance_type, rtol=1e-10):
    """Counts, means and covariances agree, measured in the expected standard deviations."""
    np.testing.assert_allclose(got[0], expected[0], rtol=rtol)
    variances = np.diag(expected[2])
    spread = np.sqrt(variances)
    # Means can't be held closer than their last bits (1e-10 for an offset of 1e6), and a mean that
    # is off by u changes a covariance by up to s u.
    bits = 4.0 * np.spacing(np.abs(expected[1]))
    assert np.all(np.abs(got[1] - expected[1]) <= rtol * spread + bits)
    error = np.abs(got[2] - expected[2])
    allowed = rtol * np.outer(spread, spread) + np.outer(spread, bits) + np.outer(bits, spread)
    assert np.all(np.diag(error) <= np.diag(allowed))
    if covariance_type == "full":
        assert np.all(error <= allowed)


def assert_details_match(mixture, covariance_type, rtol=1e-10):
    """Each detailed model has the mean and covariance of its component."""
    np.testing.assert_allclose(mixture.detail_weights.sum(axis=1), 1.0, rtol=1e-14)
    of_details = mixture.all_detail_covariances()
    for i in range(mixture.n_compounds):
        expected = 1.0, mixture.means[i], full_covariances(mixture.covariances[i : i + 1])[0]
        details = full_covariances(of_details[i])
        got = moments(mixture.detail_weights[i], mixture.detail_means[i], details)
        assert_same_moments(got, expected, covariance_type, rtol)


def votes_of_near(points, others, counts, codes, own, n_classes, n_samples, most, width, n_widths):
    votes = np.zeros((len(points), n_widths, n_classes))
    for i, point in enumerate(points):
        squares, left = ((point - others) ** 2).sum(axis=1), counts.copy()
        of_own = np.flatnonzero(codes == own[i])
        if len(of_own):
            nearest = of_own[np.argmin(squares[of_own])]
            left[nearest] = max(left[nearest] - 1.0, 0.0)
        some = np.flatnonzero(left > 0.0)
        if not len(some):
            continue
        squares, left = squares[some], left[some]
        order = np.argsort(squares, kind="stable")[:most]
        last = order[np.cumsum(left[order]) >= n_samples]
        radius = squares[last[0] if len(last) else order[-1]]
        widest = max(width**2 * radius, 1e-18 * point @ point, np.finfo(float).tiny)
        for number in range(n_widths):
            # Half as wide is a quarter of the variance.
            kernels = np.exp(-0.5 * (squares - squares.min()) / widest)
            kernels = left * kernels ** (4.0 ** (n_widths - 1 - number))
            of_width = np.bincount(codes[some], kernels, minlength=n_classes)
            votes[i, number] = of_width * min(1.0, n_samples / of_width.sum())
    return votes


def nearest_components(points, counts, chosen, n_nearest):
    nearest, squares = np.empty((2, len(chosen), n_nearest))
    for i, number in enumerate(chosen):
        squares_to = ((points - points[number]) ** 2).sum(axis=1)
        if counts[number] <= 1.0:
            squares_to[number] = np.inf
        nearest[i] = np.argsort(squares_to, kind="stable")[:n_nearest]
        squares[i] = np.sort(squares_to)[:n_nearest]
    return nearest, squares


def loss_of_votes(factors, squares, counts, agree, precisions, prior, times, prior_count):
    loss, slopes = 0.0, np.zeros(len(factors))
    for i in range(len(squares)):
        exponents = [-0.5 * precisions[i] * (factors @ voter) for voter in squares[i]]
        along = [-0.5 * precisions[i] * voter for voter in squares[i]]
        nearest = np.argmax(exponents)
        votes = counts[i] * np.exp(np.array(exponents) - exponents[nearest])
        votes_along = votes[:, None] * (np.array(along) - along[nearest])
        share = (votes[agree[i]].sum() + prior[i]) / (votes.sum() + prior_count)
        loss -= times[i] * np.log(share)
        slopes -= times[i] * votes_along[agree[i]].sum(axis=0) / (votes[agree[i]].sum() + prior[i])
        slopes += times[i] * votes_along.sum(axis=0) / (votes.sum() + prior_count)
    return loss, slopes


def distinct_groups(partitions, n_components, n_compounds):
    n_groups = partitions.max(axis=1, initial=-1) + 1
    groups = [
        [set_of(labels, g) for g in range(n)]
        for labels, n in zip(partitions, n_groups, strict=True)
    ]
    found = []
    for first, of_first in enumerate(groups):
        for group in of_first:
            if group and not (first and group in groups[first - 1]):
                last = first
                while last + 1 < len(groups) and group in groups[last + 1]:
                    last += 1
                found.append((group, (first, last)))
    own = [(group, span) for group, span in found if len(group) == 1 and group[0] < n_compounds]
    merged = [(group, span) for group, span in found if len(group) > 1]
    diracs = [(group, span) for group, span in found if len(group) == 1 and group[0] >= n_compounds]
    later = (n_components - partitions.shape[1]) * [(0, len(partitions) - 1)]
    spans = [span for _, span in own + merged + diracs] + later
    numbers = sorted(set(spans))
    return (
        [group[0] for group, _ in own],
        [group[0] for group, _ in diracs],
        [member for group, _ in merged for member in group],
        np.cumsum([0, *(len(group) for group, _ in merged)]),
        [numbers.index(span) for span in spans],
        [[first <= r <= last for r in range(len(partitions))] for first, last in numbers],
    )


def set_of(labels, group):
    return tuple(np.flatnonzero(labels == group).tolist())


def mixture_weights(estimates, gaussians, shrunk, there, n_narrow):
    n_shapes, _, n_kernels = estimates.shape
    sides = [range(n_narrow), range(n_narrow, n_kernels)] if n_narrow else [range(n_kernels)]
    groups = [(range(n_shapes), range(n_kernels))]
    groups += [([shape], side) for shape in range(n_shapes) for side in sides]
    weights = np.zeros((n_shapes, len(groups), len(there), n_kernels + gaussians.shape[1]))
    of_shrunk = np.zeros((len(shrunk), len(groups), 2, 1))
    for number, (shapes, side) in enumerate(groups):
        for shape in shapes:
            for width in side:
                weights[shape, number, :, width] = there @ estimates[shape, :, width]
            weights[shape, number, -1, n_kernels:] = gaussians[shape]
        if 0 in shapes:
            of_shrunk[:, number, 1, 0] = shrunk
        total = gaussians[list(shapes)].sum() + of_shrunk[:, number].sum()
        total += estimates[np.ix_(shapes, range(estimates.shape[1]), side)].sum()
        weights[:, number] /= total
        of_shrunk[:, number] /= total
    return weights, of_shrunk


def through_factors(hidden, factors, noise, rng):
    """Rows of many correlated features, by few that are hidden and have long tails."""
    X = np.sinh(hidden) @ factors
    return X + noise * rng.normal(size=X.shape)


def conditionals(density, rows, known, outputs):
    """Distributions of outputs where features are known, of a regressor's density.

    Each kernel's own conditional counts what the kernel does, times a power of what it says of the
    features.
    """
    kde, of_kernels = density._kde(density._settings()), {}
    for family, part, width, weight in kde.densities:
        shares, means, covariances = family.gaussians_of(part, width)
        if covariances.ndim == 2:
            covariances = covariances[:, :, None] * np.eye(covariances.shape[1])
        kernel = id(family.kernels.frame), width
        of_kernels.setdefault(kernel, []).append((weight * shares, means, covariances))
    mixtures = []
    for parts in of_kernels.values():
        weights, means, covariances = map(np.concatenate, zip(*parts, strict=True))
        mixture = GaussianMixtureDistribution(weights / weights.sum(), means, covariances)
        mixtures.append((weights.sum(), mixture.marginal([*known, *outputs])))
    found, numbers = [], range(len(known))
    count = density._mixture.counts.sum()
    power = 1.0 / (1.0 + len(known) * (500.0 / count if count > 500.0 else 1.0))
    for row in rows:
        counts, parts = [], []
        for total, mixture in mixtures:
            says = mixture.marginal(numbers).logpdf(row) if len(known) else 0.0
            counts.append(np.log(total) + power * says)
            parts.append((mixture.conditional(numbers, row) if len(known) else mixture).arrays)
        counts = np.exp(counts - np.max(counts))
        weights, means, covariances = zip(*parts, strict=True)
        weights = np.concatenate([c * w for c, w in zip(counts, weights, strict=True)])
        arrays = map(np.concatenate, (means, covariances))
        found.append(GaussianMixtureDistribution(weights / weights.sum(), *arrays))
    return found
