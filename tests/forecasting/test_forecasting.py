"""Load predictors: fits against statsmodels and scikit-learn, intervals against their own promise, losses by hand."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import forecasting, workload
from dspkit.core import Deployment, DspkitError, InstanceMetrics, OperatorMetrics, Snapshot, Topology
from dspkit.forecasting import (
    AutoRegression,
    HoltWinters,
    LastValue,
    MarkovLevels,
    MovingAverage,
    Predictor,
    SeasonalNetwork,
    Series,
    backtest,
    compare_predictors,
)
from dspkit.forecasting.backtest import mase, pinball, smape
from dspkit.forecasting.proactive import as_if

ALL = [kind() for kind in forecasting.available().values()]
each = pytest.mark.parametrize("predictor", ALL, ids=lambda p: p.name)


def _autoregressive(n=600, seed=0, weights=(0.6, 0.3), sigma=10.0, mean=500.0):
    rng, x = np.random.default_rng(seed), [0.0, 0.0]
    for _ in range(n + 100):
        x.append(sum(w * v for w, v in zip(weights, x[::-1], strict=False)) + rng.normal(0, sigma))
    return Series(mean + np.array(x[-n:]))


def _waves(n=600, period=60, seed=0, noise=15.0):
    t, rng = np.arange(n), np.random.default_rng(seed)
    return Series(500 + 300 * np.sin(2 * np.pi * t / period) + rng.normal(0, noise, n))


# What every predictor keeps to


@each
@given(values=st.lists(st.floats(0, 1e9), min_size=1, max_size=60), horizon=st.integers(1, 12))
@settings(max_examples=15)
def test_any_past_gives_a_forecast_inside_its_interval(predictor, values, horizon):
    if isinstance(predictor, SeasonalNetwork):
        predictor = replace(predictor, iterations=5)
    f = Series(values).forecast(predictor, horizon)
    assert f.mean.shape == f.low.shape == f.high.shape == (horizon,)
    assert np.isfinite([f.mean, f.low, f.high]).all()
    assert (f.low >= 0).all()
    assert (f.low <= f.mean * (1 + 1e-9) + 1e-6).all()
    assert (f.mean <= f.high * (1 + 1e-9) + 1e-6).all()
    assert f.peak == f.mean.max()


@each
def test_it_is_a_predictor_that_is_pure_and_whose_memory_is_picklable_and_comparable(predictor):
    past = _waves(200)
    assert isinstance(predictor, Predictor)
    before = past.values.copy()
    one, two = predictor.learn(past), predictor.learn(past)
    assert one == two
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    f, g = predictor.forecast(one, past, 7), predictor.forecast(again, past, 7)
    assert (f.mean == g.mean).all()
    assert (past.values == before).all()
    assert len(pickle.dumps(one)) < 20_000


@each
def test_a_constant_load_goes_on(predictor):
    f = Series([700.0] * 80).forecast(predictor, 5)
    assert f.mean == pytest.approx(700, rel=1e-6)


@each
def test_scaling_the_load_scales_the_forecast(predictor):
    x = _waves(150)
    small, large = (s.forecast(predictor, 5) for s in (x, Series(x.values * 1000)))
    rel = 0.05 if isinstance(predictor, (HoltWinters, SeasonalNetwork)) else 1e-6  # found by search
    assert large.mean == pytest.approx(1000 * small.mean, rel=rel)


@each
@pytest.mark.parametrize("horizon", [0, -1, 2.5, True, "5", None])
def test_horizons_that_are_none_are_refused(predictor, horizon):
    with pytest.raises(DspkitError, match="horizon"):
        Series(np.arange(60.0)).forecast(predictor, horizon)


@each
def test_no_past_is_refused(predictor):
    with pytest.raises(DspkitError, match="values to predict from"):
        predictor.forecast(None, Series([]), 3)


@pytest.mark.parametrize(
    "predictor",
    [LastValue(), MovingAverage(), AutoRegression(lags=3), HoltWinters(), SeasonalNetwork(), MarkovLevels()],
    ids=lambda p: p.name,
)
def test_intervals_hold_as_often_as_they_say(predictor):
    """90 % intervals over 20 independent series x 100 forecasts of three steps. The share of one series has a standard
    deviation below 10 %, the mean of 20 below 2.2 %: 6 % off is 2.7 sigma, a false alarm in 150.
    """
    shares = [
        backtest(predictor, _autoregressive(400, seed), horizon=3, first=300, relearn=1000, memory=300)
        for seed in range(20)
    ]
    assert np.mean([s.scores["coverage"] for s in shares]) == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("predictor", [AutoRegression(lags=1), MarkovLevels(levels=3)], ids=lambda p: p.name)
def test_where_misses_are_exchangeable_the_interval_holds_within_one_part_in_n(predictor):
    """Theory of conformal prediction: n = 18 misses, of independent values, hold with a chance from 0.9 to 0.9 + 1/19.
    The model is fitted to more values than the one that was calibrated, so a little more is allowed. Of 1 000 series
    the standard deviation is 0.95 %: 3 sigma on each side. Lopsided values, of which a normal interval is no match.
    """
    rng = np.random.default_rng(0)
    held = []
    for _ in range(1000):
        x = 1000 + rng.exponential(100, 61)
        f = Series(x[:60]).forecast(predictor, 1)
        held.append(f.low[0] <= x[60] <= f.high[0])
    assert 0.9 - 0.03 < np.mean(held) < 0.9 + 1 / 19 + 0.04


@pytest.mark.parametrize("predictor", [AutoRegression(lags=48), HoltWinters(season=48)], ids=lambda p: p.name)
def test_calibration_mends_intervals_of_models_that_are_too_sure(predictor):
    """A load by the hour and the day of the week, which neither model knows all of; three series, mean of all."""
    t = 1800 * np.arange(14 * 48)
    day, weekend = 2 * np.pi * t / 86_400, np.where(t // 86_400 % 7 >= 5, 0.6, 1.0)
    rhythm = weekend * (500 - 300 * np.cos(day) + 120 * np.sin(2 * day))
    shares = {"model": [], "calibrated": []}
    for seed in range(3):
        series = Series(rhythm + np.random.default_rng(seed).normal(0, 25, len(t)), every_s=1800)
        for interval, share in shares.items():
            turned = replace(predictor, interval=interval)
            share.append(backtest(turned, series, stride=6, relearn=30).scores["coverage"])
    assert np.mean(shares["model"]) < 0.86
    assert np.mean(shares["calibrated"]) == pytest.approx(0.9, abs=0.04)


def test_by_how_much_an_interval_is_widened_by_hand():
    """Levels of a load that stays where it is, then jumps about: the misses of the rest, sorted, tell by how much."""
    past = Series([100.0] * 35 + [101, 99, 105, 95, 102, 98, 103, 97, 104, 96, 110, 100, 100, 100, 100])
    f = past.forecast(MarkovLevels(held_out=0.3), 1)
    # 15 values held out, all said to be 100: misses 0 x 4, 1 1 2 2 3 3 4 4 5 5 10; the ceil(16 * 0.9) = 15th is 10.
    assert MarkovLevels(held_out=0.3).learn(past).missing[0] == 10
    plain = past.forecast(MarkovLevels(interval="model"), 1)
    assert (f.low[0], f.high[0]) == (plain.low[0] - 10, plain.high[0] + 10)


# Each against an independent reference


def test_last_value_and_moving_average_by_hand():
    past = Series([1, 2, 4, 8, 16])
    assert past.forecast(LastValue(level=0.5), 2).mean.tolist() == [16, 16]
    assert past.forecast(MovingAverage(samples=2), 1).mean.tolist() == [12]
    f = past.forecast(LastValue(level=0.98), 1)  # steps before: 1, 2, 4, 8
    assert (f.low[0], f.high[0]) == (16, 24)


def test_autoregression_is_statsmodels_own_forecast_and_interval():
    from statsmodels.tsa.ar_model import AutoReg

    past = _autoregressive(300)
    f = past.forecast(AutoRegression(lags=4, level=0.8, interval="model"), 12)
    theirs = AutoReg(past.values, lags=4).fit().get_prediction(start=300, end=311)
    assert f.mean == pytest.approx(np.asarray(theirs.predicted_mean), rel=1e-9)
    bounds = np.asarray(theirs.conf_int(alpha=0.2))
    assert f.low == pytest.approx(bounds[:, 0], rel=1e-6)
    assert f.high == pytest.approx(bounds[:, 1], rel=1e-6)


def test_autoregression_finds_the_weights_that_made_the_series():
    """Standard error of a weight about sqrt((1 - w^2) / n) < 0.02 at n = 5 000: 0.07 is 3.5 sigma."""
    learned = AutoRegression(lags=2).learn(_autoregressive(5000, seed=3)).model
    assert learned.weights == pytest.approx((0.6, 0.3), abs=0.07)
    assert learned.sigma == pytest.approx(10, rel=0.05)


def test_holt_winters_is_close_to_statsmodels_other_implementation():
    """ETS by likelihood against exponential smoothing by least squares, on a series both should get right."""
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    past = _waves(360)
    f = past.forecast(HoltWinters(season=60), 60)
    theirs = (
        ExponentialSmoothing(past.values, trend="add", damped_trend=True, seasonal="add", seasonal_periods=60)
        .fit()
        .forecast(60)
    )
    truth = 500 + 300 * np.sin(2 * np.pi * np.arange(360, 420) / 60)
    assert np.abs(f.mean - theirs).mean() < 15  # the noise of the series
    assert np.abs(f.mean - truth).mean() < 20


def test_holt_winters_goes_on_with_what_it_learned_from_an_earlier_past():
    whole = _waves(500)
    predictor = HoltWinters(season=60)
    memory = predictor.learn(whole[:300])
    f = predictor.forecast(memory, whole[100:440], 60)
    assert np.abs(f.mean - (500 + 300 * np.sin(2 * np.pi * np.arange(440, 500) / 60))).mean() < 25


def _net_and_examples(**knobs):
    past = _waves(200)
    predictor = SeasonalNetwork(interval="model", **knobs)
    net = predictor.learn(past).model
    ends = np.arange(9, 195)
    return net, predictor._inputs(past, ends), np.stack([past.values[ends + s] for s in range(1, 6)], axis=1)


def test_the_networks_own_arithmetic_is_scikit_learns():
    import warnings

    from sklearn.neural_network import MLPRegressor

    net, inputs, targets = _net_and_examples()
    scaled, low, wide = (inputs - net.least) / net.span, *net.range
    theirs = MLPRegressor(
        hidden_layer_sizes=(24,), activation="tanh", solver="lbfgs", alpha=1e-4, max_iter=500, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(scaled, (targets - low) / wide)
    own = [np.square(f - targets).mean() for f in (net(inputs), theirs.predict(scaled) * wide + low)]
    theirs.coefs_, theirs.intercepts_ = list(net.layers.weights), list(net.layers.biases)
    assert net(inputs) == pytest.approx(theirs.predict(scaled) * wide + low, rel=1e-9)
    assert [w.shape for w in net.layers.weights] == [(13, 24), (24, 5)]  # 13-24-5 as ELYSIUM's
    assert own[0] < 3 * own[1]  # it stops sooner, lest it learn the noise


@pytest.mark.parametrize("linear", [True, False])
def test_gradients_of_nets_are_those_that_differences_tell(linear):
    from dspkit.forecasting import network as training

    rng = np.random.default_rng(0)
    inputs, targets = rng.random((30, 4)), rng.random((30, 2))
    net = training._start(inputs, targets, 5, 0)
    _, slopes = training.gradient(net, inputs, targets, 1.0, linear)
    for part, slope in zip(net, slopes, strict=True):
        for at in [(0, 0), (-1, -1)]:
            ends = []
            for step in (1e-6, -2e-6, 1e-6):  # up, down, back
                part[at] += step
                ends.append(training.gradient(net, inputs, targets, 1.0, linear)[0])
            assert slope[at] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


def test_resilient_backpropagation_goes_weight_by_weight_as_it_was_published():
    """Riedmiller and Braun's rule, written out for one weight at a time, on the same start and the same gradients."""
    from dspkit.forecasting import network as training

    rng = np.random.default_rng(1)
    inputs = rng.random((40, 3))
    targets = np.stack([inputs.sum(axis=1) / 3, inputs[:, 0] ** 2], axis=1)
    net = training._start(inputs, targets, 4, 7)
    flat = np.concatenate([part.ravel() for part in net])

    def slopes(flat):
        cuts = np.cumsum([part.size for part in net])[:-1]
        parts = [p.reshape(q.shape) for p, q in zip(np.split(flat, cuts), net, strict=True)]
        return np.concatenate([s.ravel() for s in training.gradient(parts, inputs, targets, 1.0, False)[1]])

    delta, before, move = [0.1] * len(flat), [0.0] * len(flat), [0.0] * len(flat)
    turned = 0
    for _ in range(60):
        now = slopes(flat)
        for i in range(len(flat)):
            if now[i] * before[i] > 0:
                delta[i] = min(delta[i] * 1.2, 50)
                move[i] = -delta[i] if now[i] > 0 else delta[i]
                before[i] = now[i]
            elif now[i] * before[i] < 0:
                delta[i] = max(delta[i] * 0.5, 1e-6)
                move[i], before[i] = -move[i], 0.0
                turned += 1
            else:
                move[i] = -delta[i] if now[i] > 0 else delta[i]
                before[i] = now[i]
            flat[i] += move[i]
    ours = training.resilient(inputs, targets, 4, rounds=60, folds=1, seed=7)
    mine = np.concatenate([*(w.ravel() for w in ours.weights), *(b.ravel() for b in ours.biases)])
    assert turned > 50
    assert mine == pytest.approx(flat, rel=1e-9)
    assert np.abs(ours(inputs) - targets).mean() < 0.1


@pytest.mark.parametrize("method", ["resilient", "lbfgs"])
def test_training_stops_before_it_learns_the_noise(method):
    """Targets that have nothing to do with the inputs: the best forecast of new ones is their mean."""
    from dspkit.forecasting import network as training

    rng = np.random.default_rng(2)
    inputs, targets = rng.random((80, 5)), 0.5 + 0.1 * rng.normal(size=(80, 1))
    stops = getattr(training, method)(inputs, targets, 24, linear=True, rounds=400)
    new = rng.random((500, 5))
    assert np.abs(stops(new) - 0.5).mean() < 0.1
    if method == "resilient":
        goes_on = training.resilient(inputs, targets, 24, linear=True, rounds=400, folds=1)
        assert np.abs(goes_on(new) - 0.5).mean() > 1.5 * np.abs(stops(new) - 0.5).mean()


def test_tanh_outputs_tell_no_load_above_the_greatest_seen_and_linear_ones_do():
    ramp = Series(np.arange(100.0, 300.0))
    for how in ("lbfgs", "rprop"):
        tanh = ramp.forecast(SeasonalNetwork(training=how, output="tanh", interval="model", folds=3), 5)
        assert tanh.mean.max() <= 299
    linear = ramp.forecast(SeasonalNetwork(interval="model"), 5)
    assert linear.mean == pytest.approx(np.arange(300, 305), rel=0.05)


def test_the_papers_net_learns_a_rhythm():
    """13-24-5, tanh, resilient backpropagation, ten folds: as ELYSIUM has it."""
    paper = SeasonalNetwork(output="tanh", training="rprop", interval="model", iterations=200)
    scores = backtest(paper, _waves(400), first=300, relearn=1000, stride=5).scores
    assert scores["MASE"] < 0.5 * backtest(LastValue(), _waves(400), first=300, stride=5).scores["MASE"]


@pytest.mark.parametrize("knobs", [{}, {"season": 12}, {"season": 12, "trend": False}, {"damped": False}])
def test_holt_winters_from_any_place_is_statsmodels_from_there(knobs):
    """Its own sum of level, trend and season, at several ends of the past, against statsmodels on that past alone."""
    past = _waves(120, period=12)
    predictor = HoltWinters(interval="model", **knobs)
    model = predictor.learn(past).model
    for end in (60, 99, 120):
        at = predictor._from(model, past, np.array([end - 1]), 15)
        theirs = predictor._model(past[:end]).smooth(np.array(model)).get_prediction(start=end, end=end + 14)
        if end == 120:  # earlier pasts begin from other starting values
            assert at.mean[0] == pytest.approx(np.asarray(theirs.predicted_mean), rel=1e-9)
            bounds = np.asarray(theirs.pred_int(alpha=0.1))
            assert at.low[0] == pytest.approx(bounds[:, 0], rel=1e-9)
        assert at.mean[0] == pytest.approx(np.asarray(theirs.predicted_mean), rel=0.1)


def test_the_network_reads_the_calendar():
    """Monday 00:00 is second 0: Wednesday, 05:07 is the 2nd day, hour 5, minute 7."""
    start = 2 * 86400 + 5 * 3600 + 7 * 60
    inputs = SeasonalNetwork()._inputs(Series(np.arange(10.0), 60, start - 9 * 60), np.array([9]))
    assert inputs[0].tolist() == [2, 5, 7, *range(9, -1, -1)]


def test_the_network_learns_a_daily_rhythm_that_the_last_value_cannot_know():
    """Two weeks in steps of ten minutes; the load jumps at nine each morning, before which nothing tells of it."""
    t = 600 * np.arange(14 * 144)
    x = np.where((t % 86400 >= 9 * 3600) & (t % 86400 < 17 * 3600), 900.0, 200.0)
    past = Series(x + np.random.default_rng(0).normal(0, 5, len(t)), 600)
    at = 13 * 144 + 54  # 09:00 of the last day is next
    net = SeasonalNetwork(outputs=3)
    f = net.forecast(net.learn(past[: 13 * 144]), past[:at], 3)
    assert past[:at].forecast(LastValue(), 3).mean.max() < 250
    assert f.mean.mean() > 450


def test_markov_levels_follow_the_chain_that_made_the_load():
    """Two levels, switched with known chances: h steps ahead the mean is e_0 TM^h, in the long run the stationary
    one. Standard error of an estimated chance below 0.7 % at 5 000 samples.
    """
    rng, matrix = np.random.default_rng(0), np.array([[0.9, 0.1], [0.3, 0.7]])
    at = [0]
    for _ in range(5000):
        at.append(int(rng.random() < matrix[at[-1], 1]))
    rates = np.array([100.0, 500.0])
    past = Series(rates[at])
    f = past.forecast(MarkovLevels(levels=2), 40)
    now = np.eye(2)[at[-1]]
    expected = [now @ np.linalg.matrix_power(matrix, h) @ rates for h in range(1, 41)]
    assert f.mean == pytest.approx(expected, abs=20)
    long = past.forecast(MarkovLevels(levels=2, stationary=True), 1)
    assert long.mean[0] == pytest.approx(0.75 * 100 + 0.25 * 500, abs=20)
    assert (f.low[-1], f.high[-1]) == (100, 500)


# Backtest and losses


def test_losses_by_hand():
    actual, forecast = np.array([10.0, 0, 30]), np.array([30.0, 0, 10])
    assert smape(actual, forecast) == pytest.approx((1 + 0 + 1) / 3)
    assert mase(actual, forecast, np.array([1.0, 3, 5, 3])) == pytest.approx((40 / 3) / 2)
    assert mase(actual, actual, np.ones(4)) == 0
    assert mase(actual, forecast, np.ones(4)) == float("inf")
    assert pinball(actual, forecast, 0.9) == pytest.approx((0.1 * 20 + 0 + 0.9 * 20) / 3)
    assert pinball(actual, forecast, 0.5) == pytest.approx(np.abs(actual - forecast).mean() / 2)


def test_the_pinball_loss_is_least_at_the_quantile_and_is_scikit_learns():
    from sklearn.metrics import mean_pinball_loss

    x = np.random.default_rng(0).gamma(2, 100, 2001)
    losses = {q: pinball(x, np.full_like(x, np.quantile(x, q)), 0.8) for q in (0.7, 0.75, 0.8, 0.85, 0.9)}
    assert min(losses, key=losses.get) == 0.8
    assert losses[0.8] == pytest.approx(mean_pinball_loss(x, np.full_like(x, np.quantile(x, 0.8)), alpha=0.8))


def test_a_backtest_sees_nothing_of_the_future():
    """Each forecast is from what came before its origin: changing what comes later changes none."""
    x = _waves(120)
    for predictor in (LastValue(), AutoRegression(), HoltWinters(), MarkovLevels()):
        whole = backtest(predictor, x, horizon=4, first=60, relearn=7)
        changed = Series(np.concatenate((x.values[:90], np.zeros(30))))
        other = backtest(predictor, changed, horizon=4, first=60, relearn=7)
        assert (whole.mean[:31] == other.mean[:31]).all()
        assert (whole.actual[:25] == other.actual[:25]).all()


def test_a_backtest_rolls_its_origin_and_tells_it_as_a_frame():
    result = backtest(LastValue(), Series(np.arange(20.0), 10, 1000), horizon=3, first=8, stride=4)
    assert result.origins_s.tolist() == [1080, 1120, 1160]
    assert result.mean[:, 0].tolist() == [7, 11, 15]
    frame = result.frame
    assert len(frame) == 9
    assert frame.t.tolist()[:4] == [1080, 1090, 1100, 1120]
    assert (frame.actual - frame["mean"]).tolist() == [1, 2, 3] * 3
    assert result.scores["MASE"] == 2  # 1, 2, 3 off, where one step is 1
    assert "MASE 2" in repr(result)


def test_on_a_random_walk_nothing_beats_the_last_value_and_on_waves_much_does():
    walk = Series(5000 + np.cumsum(np.random.default_rng(1).normal(0, 10, 400)))
    scores = compare_predictors([LastValue(), MovingAverage(), MarkovLevels()], walk, horizon=1)
    assert scores.index[0] == "last value"
    assert scores.MASE["last value"] == pytest.approx(1, abs=0.2)
    waves = compare_predictors([LastValue(), AutoRegression(lags=20), HoltWinters(season=60)], _waves(), stride=10)
    assert waves.MASE["last value"] > 2 * waves.MASE.drop("last value").max()


def test_a_trace_is_a_series_and_a_formula_needs_its_length():
    trace = workload.Trace((0, 60, 120), (10, 20, 30))
    series = Series.of(trace)
    assert (series.values.tolist(), series.every_s) == ([10, 20, 30], 60)
    assert Series.of(workload.Constant(5), 100, 25).values.tolist() == [5] * 4
    with pytest.raises(DspkitError, match="pass both"):
        Series.of(workload.Sine())
    assert backtest(LastValue(), workload.Trace(range(10), range(10)), horizon=1).scores["MASE"] == 1


def test_parts_of_a_series_keep_their_times():
    part = Series(np.arange(10.0), 60, 600)[3:5]
    assert (part.times_s.tolist(), part.values.tolist()) == ([780, 840], [3, 4])
    with pytest.raises(DspkitError, match="contiguous"):
        part[::2]


@pytest.mark.parametrize("values", [[[1, 2]], [float("nan")], ["x"], [None, 1], float("inf")])
def test_what_is_no_series_is_refused(values):
    with pytest.raises(DspkitError):
        Series(values)


@pytest.mark.parametrize("times", [{"every_s": "minute"}, {"every_s": 0}, {"start_s": float("nan")}, {"start_s": None}])
def test_series_without_proper_times_are_refused(times):
    with pytest.raises(DspkitError):
        Series([1, 2], **times)


@pytest.mark.parametrize(
    "call",
    [
        lambda: backtest(LastValue, Series(np.arange(20.0))),
        lambda: backtest(LastValue(), list(range(20))),
        lambda: compare_predictors([], Series(np.arange(20.0))),
    ],
)
def test_what_is_no_predictor_or_no_series_is_told(call):
    with pytest.raises(DspkitError):
        call()


def test_numpy_counts_are_counts():
    assert len(Series([1, 2, 3]).forecast(LastValue(), np.int64(3)).mean) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"first": 1}, {"first": 19}, {"horizon": 30}, {"stride": 0}, {"relearn": 0}, {"stride": 1.5}, {"first": "half"},
        {"memory": 0}, {"memory": -1},
    ],
)  # fmt: skip
def test_backtests_that_cannot_be_are_refused(options):
    with pytest.raises(DspkitError):
        backtest(LastValue(), Series(np.arange(20.0)), **options)


def test_wrong_knobs_are_refused():
    with pytest.raises(DspkitError, match="0 is no season"):
        HoltWinters(season=1)
    with pytest.raises(DspkitError, match="level"):
        LastValue(level=1.0)


def test_learning_libraries_load_only_when_they_are_used():
    import subprocess
    import sys

    code = "import sys, dspkit.forecasting, dspkit.policies.fission; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"statsmodels", "sklearn", "scipy", "pandas"} & set(loaded)


def test_libraries_do_not_warn_even_at_their_first_import():
    """statsmodels sets filters of its own when it is loaded: loaded within ours, these would be undone."""
    import subprocess
    import sys

    code = (
        "from dspkit.forecasting import *; s = Series([0.0, 9.0] * 40); "
        "[s.forecast(p, 3) for p in (AutoRegression(), HoltWinters())]"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert told == ""


@pytest.mark.parametrize("predictor", [AutoRegression(), HoltWinters()], ids=lambda p: p.name)
def test_a_missing_library_is_named_with_what_to_do(predictor, monkeypatch):
    import sys

    for name in [m for m in sys.modules if m.partition(".")[0] == "statsmodels"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(DspkitError, match=r"dspkit\[forecasting\]"):
        predictor.learn(_waves(100))


def test_two_of_a_kind_are_told_apart():
    scores = compare_predictors([MarkovLevels(), MarkovLevels(stationary=True)], _waves(100), horizon=1)
    assert set(scores.index) == {"markov levels", "MarkovLevels(stationary=True)"}


def test_the_table_of_predictors_has_a_row_for_each_and_three_kinds_of_load(monkeypatch):
    from reproduction import page
    from reproduction.predictors import section
    from reproduction.predictors import study as predictors

    for kind, period in (("week", 48), ("waves", 60)):
        x = predictors.load(kind, 0).values
        assert np.corrcoef(x[:-period], x[period:])[0, 1] > 0.8
    assert not (predictors.load("wandering", 0).values == predictors.load("wandering", 1).values).all()
    assert len({repr(p) for p in predictors.predictors("week").values()}) == 8
    two = {"last value": LastValue(), "Markov levels": MarkovLevels()}
    monkeypatch.setattr(predictors, "predictors", lambda kind: two)
    found = predictors.table((0,), 60)
    assert list(found.index) == list(two)
    one = backtest(LastValue(), predictors.load("waves", 0), stride=60, relearn=30).scores
    assert found["waves: MASE"]["last value"] == one["MASE"]
    assert found["waves: held"]["last value"] == found["waves: model's own"]["last value"] == one["coverage"]
    shown = section.SECTION.show({"errors": page.records(found.reset_index())}).values["errors"]
    assert {line.count("|") for line in shown.splitlines()} == {11}


def test_a_forecast_raises_the_load_of_each_instance() -> None:
    """Policies that read instances would not see it otherwise."""
    each = (InstanceMetrics(60, 0.6, 0, cpu=0.6), InstanceMetrics(40, 0.4, 0, cpu=0.4))
    read = OperatorMetrics(100, 100, 100, true_rate=1000, utilisation=0.1, backlog=0, parallelism=1)
    count = OperatorMetrics(100, 100, 100, true_rate=100, utilisation=0.5, backlog=0, parallelism=2, instances=each)
    rates = {("read", "count"): 100}
    now = Snapshot(10, 10, Deployment({"read": 1, "count": 2}), {"read": read, "count": count}, {"read": 100}, 100,
                   None, None, 0, rates)  # fmt: skip
    then = as_if(Topology.chain("read", "count"), now, {"read": 150})
    assert [i.utilisation for i in then.operators["count"].instances or ()] == pytest.approx([0.9, 0.6])
    assert [i.processing_rate for i in then.operators["count"].instances or ()] == pytest.approx([90, 60])
    assert then.operators["read"].instances is None
