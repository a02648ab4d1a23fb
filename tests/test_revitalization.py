"""Revitalization: undoing compressions that were too strong (paper, Section 2.7)."""

import numpy as np
import pytest

import twins
from skokde import OnlineKDEDensity
from skokde._engine import learn
from skokde._engine.hellinger import detail_errors
from skokde._engine.revitalization import revitalize

both_structures = pytest.mark.parametrize("covariance_type", ["full", "diag"])


# ------------------------------------------------------------------------------ does it matter


def clusters_of(centers, deviation, n, seed):
    centers = np.asarray(centers, dtype=float)
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n, centers.shape[1]))
    return centers[rng.integers(len(centers), size=n)] + deviation * noise


CROSS = [[-2, 0], [2, 0], [0, 2], [0, -2]]

# Modes that a young model, with its wide kernel, takes for one Gaussian, which then draws all that
# comes later into itself; and how much log-likelihood of new rows it costs not to undo that.
OVERCOMPRESSED = {
    "two modes": ([[-2], [2]], 0.5, {"bandwidth": "silverman", "compression_threshold": 0.2}, 0.3),
    "cross, plug-in": (CROSS, 0.4, {"bandwidth": "plugin", "compression_threshold": 0.2}, 0.3),
    "cross, wide kernel": (CROSS, 0.4, {"bandwidth": 1.5, "compression_threshold": 0.1}, 0.1),
}


@pytest.mark.parametrize("stream", OVERCOMPRESSED)
def test_turning_it_off_hurts(stream, monkeypatch):
    centers, deviation, parameters, margin = OVERCOMPRESSED[stream]
    fired = False

    def watched(mixture, frame, threshold):
        nonlocal fired
        new = revitalize(mixture, frame, threshold)
        fired = fired or new.n_components > mixture.n_components
        return new

    gains = []
    for seed in range(6):
        train = clusters_of(centers, deviation, 600, seed)
        test = clusters_of(centers, deviation, 1000, 100 + seed)
        fired = False
        scores = []
        for step in (watched, lambda mixture, frame, threshold: mixture):
            monkeypatch.setattr(learn, "revitalize", step)
            scores.append(OnlineKDEDensity(**parameters).fit(train).score(test))
        gains.append(scores[0] - scores[1])
        # By the luck of the first samples some streams don't need it; none is worse off with it.
        assert gains[-1] > -0.05 if fired else gains[-1] == 0.0
    assert np.sum(np.array(gains) > 0.1) >= 3
    assert np.mean(gains) > margin


def test_it_finds_the_modes_again():
    centers, deviation, parameters, _ = OVERCOMPRESSED["two modes"]
    X = clusters_of(centers, deviation, 600, 0)
    model = OnlineKDEDensity(**parameters)

    def valley():
        """How far the log-density between the modes lies below that at them."""
        ends_and_middle = model.score_samples([[-2.0], [2.0], [0.0]])
        return ends_and_middle[:2].min() - ends_and_middle[2]

    model.partial_fit(X[:45])
    assert np.count_nonzero(model.covariances_) == 1  # one compound over both modes
    assert valley() < 0.2
    model.partial_fit(X[45:])
    assert valley() > 1.0


# -------------------------------------------------------------------------------- what it does


def two_far_pairs(covariance_type):
    """One compound over four samples, two pairs far apart; the fifth sample is on its own."""
    X = np.array([[0.0, 0.0], [0.3, 1.0 / 3.0], [20.0, 20.0], [20.4, 19.0], [10.0, -8.0]]) / 3.0
    mixture = twins.learned_mixture(X, covariance_type)
    mixture = mixture._replace(counts=np.array([3.0, 2.0, 4.0, 1.0, 2.0]))
    kernel = twins.kernel_frame(mixture, covariance_type)
    return X, mixture, twins.merged(mixture, [0, 0, 0, 0, 1], kernel)


@both_structures
def test_component_is_replaced_by_its_details(covariance_type):
    X, _, merged = two_far_pairs(covariance_type)
    frame = twins.kernel_frame(merged, covariance_type, 0.1).frame
    assert detail_errors(merged, frame)[0] > 0.3
    revived = revitalize(merged, frame, 0.3)
    assert (revived.n_compounds, revived.n_components) == (2, 3)
    np.testing.assert_array_equal(revived.means[:2], merged.detail_means[0])
    np.testing.assert_array_equal(revived.covariances, merged.all_detail_covariances()[0])
    np.testing.assert_allclose(revived.counts, [5.0, 5.0, 2.0], rtol=1e-14)
    np.testing.assert_array_equal(revived.means[2], X[4])
    # Its new details are halves along the principal axis.
    np.testing.assert_array_equal(revived.detail_weights, 0.5)
    np.testing.assert_array_equal(*np.moveaxis(revived.all_detail_covariances(), 1, 0))
    twins.assert_details_match(revived, covariance_type)
    twins.assert_same_moments(
        twins.mixture_moments(revived), twins.mixture_moments(merged), covariance_type
    )


@both_structures
def test_single_samples_come_back_to_the_bit(covariance_type):
    X, mixture, _ = two_far_pairs(covariance_type)
    kernel = twins.kernel_frame(mixture, covariance_type, 0.1)
    merged = twins.merged(mixture, [0, 1, 0, 2, 3], kernel)
    assert merged.n_compounds == 1
    revived = revitalize(merged, kernel.frame, 0.05)
    assert (revived.n_compounds, revived.n_components) == (0, 5)
    assert {mean.tobytes() for mean in revived.means} == {row.tobytes() for row in X}
    pairs = zip(revived.means, revived.counts, strict=True)
    counts = {mean.tobytes(): count for mean, count in pairs}
    for row, count in zip(X, mixture.counts, strict=True):
        np.testing.assert_allclose(counts[row.tobytes()], count, rtol=1e-14)


@both_structures
def test_cut_in_a_sample_and_a_compound(covariance_type):
    X, mixture, _ = two_far_pairs(covariance_type)
    kernel = twins.kernel_frame(mixture, covariance_type, 0.1)
    merged = twins.merged(mixture, [0, 0, 0, 1, 2], kernel)
    revived = revitalize(merged, kernel.frame, 0.05)
    assert (revived.n_compounds, revived.n_components) == (1, 4)
    # Compounds stand first, samples after them.
    assert revived.covariances.any()
    assert {mean.tobytes() for mean in revived.means[1:]} == {row.tobytes() for row in X[2:]}


@both_structures
def test_nothing_to_revive_is_no_change(covariance_type):
    diracs = twins.learned_mixture(twins.clumps(2, 20), covariance_type)
    frame = twins.kernel_frame(diracs, covariance_type).frame
    assert revitalize(diracs, frame, 0.0) is diracs
    mixture = twins.learned_mixture(twins.clumps(2, 100), covariance_type)
    frame = twins.kernel_frame(mixture, covariance_type).frame
    assert revitalize(mixture, frame, 1.0) is mixture
    largest = detail_errors(mixture, frame).max()
    assert revitalize(mixture, frame, largest) is mixture
    assert revitalize(mixture, frame, 0.999 * largest).n_components == mixture.n_components + 1


@both_structures
def test_only_components_that_err_are_touched(covariance_type):
    mixture = twins.learned_mixture(twins.clumps(2, 300), covariance_type, threshold=0.05)
    frame = twins.kernel_frame(mixture, covariance_type).frame
    errors = detail_errors(mixture, frame)
    threshold = np.median(errors)
    kept = np.flatnonzero(errors <= threshold)
    assert 0 < len(kept) < len(errors)
    revived = revitalize(mixture, frame, threshold)
    for old, new in zip(
        (*mixture[:6], mixture.all_detail_covariances()),
        (*revived[:6], revived.all_detail_covariances()),
        strict=True,
    ):
        np.testing.assert_array_equal(new[: len(kept)], old[kept])
    m = mixture.n_compounds
    np.testing.assert_array_equal(revived.means[m - mixture.n_components :], mixture.means[m:])


@both_structures
def test_light_components_may_err(covariance_type):
    # The error is weighted by mass: the same compound, far from its details, in a large model.
    _, _, merged = two_far_pairs(covariance_type)
    frame = twins.kernel_frame(merged, covariance_type, 0.1).frame
    heavy = detail_errors(merged, frame)[0]
    counts = merged.counts.copy()
    counts[1] *= 1e4
    light = detail_errors(merged._replace(counts=counts), frame)[0]
    weight = merged.counts[0] / merged.counts.sum(), counts[0] / counts.sum()
    np.testing.assert_allclose(light / heavy, np.sqrt(weight[1] / weight[0]), rtol=1e-12)
    light_mixture = merged._replace(counts=counts)
    assert revitalize(light_mixture, frame, 0.1) is light_mixture


@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.2])
@both_structures
@pytest.mark.parametrize("d", [1, 2, 4])
def test_merging_and_reviving_settle(d, covariance_type, threshold):
    # Under one kernel they must not undo each other for ever.
    mixture = twins.learned_mixture(
        twins.clumps(d, 250, seed=2), covariance_type, threshold=threshold
    )
    kernel = twins.kernel_frame(mixture, covariance_type)
    for _ in range(3):
        mixture = twins.compressed(revitalize(mixture, kernel.frame, threshold), kernel, threshold)
    again = twins.compressed(revitalize(mixture, kernel.frame, threshold), kernel, threshold)
    for old, new in zip(mixture, again, strict=True):
        np.testing.assert_array_equal(old, new)


@both_structures
def test_streams_are_revived_under_their_own_kernel(covariance_type, monkeypatch):
    # The bandwidth that is due then, not one of an earlier compression.
    calls = []

    def watched(mixture, frame, threshold):
        expected = twins.kernel_frame(mixture, covariance_type).frame
        np.testing.assert_array_equal(frame.matrix, expected.matrix)
        calls.append(threshold)
        return revitalize(mixture, frame, threshold)

    monkeypatch.setattr(learn, "revitalize", watched)
    twins.learned_mixture(twins.clumps(2, 100), covariance_type, threshold=0.07)
    assert calls
    assert set(calls) == {0.07}


@pytest.mark.parametrize("threshold", [0.0, 1e-9])
def test_threshold_lowered_in_mid_stream_makes_no_more_components_than_samples(threshold):
    # Halves of halves err, too, if ever so little: splitting them without end would gain nothing.
    X = np.random.default_rng(0).normal(size=(1500, 2))
    model = OnlineKDEDensity(compression_threshold=0.1).fit(X[:500])
    assert model.n_components_ < 100
    model.set_params(compression_threshold=threshold)
    for n in range(500, 1500, 100):
        model.partial_fit(X[n : n + 100])
        assert model.n_components_ <= model.n_samples_seen_
