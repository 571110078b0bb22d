// SPDX-License-Identifier: GPL-2.0
//! Confidence intervals of means over seeds, and verdicts on bounds.
//!
//! 95 % intervals by the BCa bootstrap (bias corrected and accelerated: Efron 1987). With few
//! seeds, such as a verdict's first five, a plain bootstrap is too narrow: its deviation is too
//! small by the square root of n / (n - 1), and it uses a normal instead of a Student quantile.
//! Both are corrected as in Hesterberg ("What teachers should know about the bootstrap", 2015), by
//! a quantile further out.

use xdc_proto::rng::Rng;

use super::bound::Bound;

/// Resamples of one interval.
const RESAMPLES: usize = 10_000;
/// Generator seed, constant so that an interval is reproducible.
const SEED: u64 = 0x0062_6361;

/// Two-sided 95 % quantiles of Student's t by degrees of freedom, from 1; beyond the table, of the
/// normal distribution.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
const NORMAL_95: f64 = 1.960;

/// Two-sided 95 % quantile of Student's t.
pub fn t_95(freedom: usize) -> f64 {
    let known = freedom.checked_sub(1).and_then(|n| T_95.get(n));
    known.copied().unwrap_or(NORMAL_95)
}

/// A mean and the bounds of its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    pub low: f64,
    pub mean: f64,
    pub high: f64,
    /// Number of seeds.
    pub n: usize,
}

/// Verdict of an interval on a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// The whole interval violates the bound.
    Fails,
    /// The interval contains the bound, or there is no interval.
    Undecided,
    /// The whole interval satisfies the bound.
    Holds,
}

impl Decision {
    pub fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "does not hold",
            Self::Undecided => "undecided",
        }
    }

    /// Verdict on a bound without another congestion control.
    pub fn of(interval: Option<Interval>, bound: Bound<'_>) -> Self {
        let Some(Interval { low, high, .. }) = interval else {
            return Self::Undecided;
        };
        if bound.holds(low, None) && bound.holds(high, None) {
            return Self::Holds;
        }
        let beyond = bound.min.is_some_and(|min| high < min);
        match beyond || bound.max.is_some_and(|max| low > max) {
            true => Self::Fails,
            false => Self::Undecided,
        }
    }
}

impl Interval {
    /// Half of the width over the mean; 0 for a zero width, infinite for a zero mean.
    pub fn relative_half_width(&self) -> f64 {
        match self.high == self.low {
            true => 0.0,
            false => (self.high - self.low) / 2.0 / self.mean.abs(),
        }
    }
}

/// Interval of a mean over seeds; None for fewer than two values, or a non-finite one.
pub fn of_mean(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    // The order of seeds is irrelevant.
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    Some(bca(&values))
}

/// Interval of the geometric mean of `first / second`, paired by seed; None for fewer than two pairs,
/// or a negative or NaN value. Two equal values, also zeros, have the ratio 1. With any other 0 or
/// infinity it is the range of all ratios around their median, decisive only if all seeds agree.
pub fn of_ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    let fine = |value: f64| value >= 0.0;
    if pairs.len() < 2 || !pairs.iter().all(|pair| fine(pair.0) && fine(pair.1)) {
        return None;
    }
    let ratio = |&(first, second): &(f64, f64)| match first == second {
        true => 1.0,
        false => first / second,
    };
    let mut ratios: Vec<f64> = pairs.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let n = ratios.len();
    let (low, high) = (ratios[0], ratios[n - 1]);
    if low == 0.0 || high.is_infinite() {
        let mean = ratios[n / 2];
        return Some(Interval { low, mean, high, n });
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let logs = bca(&logs);
    Some(Interval { low: logs.low.exp(), mean: logs.mean.exp(), high: logs.high.exp(), n })
}

/// BCa interval of at least two sorted values.
fn bca(values: &[f64]) -> Interval {
    let n = values.len();
    let count = n as f64;
    let sum: f64 = values.iter().sum();
    let mean = sum / count;
    if values[0] == values[n - 1] {
        let (low, high) = (values[0], values[0]);
        return Interval { low, mean: low, high, n };
    }
    let mut rng = Rng::new(SEED);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..n).map(|_| values[rng.up_to(n as u64 - 1) as usize]);
            drawn.sum::<f64>() / count
        })
        .collect();
    means.sort_by(f64::total_cmp);
    // Sums in another order differ in the last digits.
    let same = 1e-9 * (values[n - 1] - values[0]);
    let below = means.partition_point(|other| *other < mean - same);
    let up_to = means.partition_point(|other| *other <= mean + same);
    // Count half of the ties; exclude 0 and 1, whose quantiles are infinite.
    let share = (below + up_to).clamp(1, 2 * RESAMPLES - 1) as f64 / (2 * RESAMPLES) as f64;
    let bias = quantile(share);
    // Skewness by the jackknife: without the value `v` the mean is (sum - v) / (n - 1), so its
    // deviations are the values', negated and divided by n - 1.
    let power = |exponent| -> f64 {
        let deviations = values.iter().map(|value| value - mean);
        deviations.map(|deviation| deviation.powi(exponent)).sum()
    };
    let acceleration = power(3) / (6.0 * power(2).powf(1.5));
    let wide = t_95(n - 1) * (count / (count - 1.0)).sqrt();
    let end = |z: f64| {
        let shifted = bias + z;
        // Too skewed for a quantile: use the outermost resample.
        let scale = 1.0 - acceleration * shifted;
        let at = match scale > 0.0 {
            true => normal(bias + shifted / scale),
            false => f64::from(u8::from(z > 0.0)),
        };
        means[((at * RESAMPLES as f64) as usize).min(RESAMPLES - 1)]
    };
    Interval { low: end(-wide).min(mean), mean, high: end(wide).max(mean), n }
}

/// Cumulative normal distribution.
fn normal(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// Inverse of [`normal`] by bisection, needed once per interval.
fn quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-10.0, 10.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match normal(middle) < share {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{
        ProptestConfig, prop, prop_assert, prop_assert_eq, prop_assume, proptest,
    };

    use super::*;

    fn within(min: Option<f64>, max: Option<f64>) -> Bound<'static> {
        Bound { min, max, less_than_cc: None }
    }

    #[test]
    fn the_normal_distribution_matches_the_tables() {
        for (z, share) in [(0.0, 0.5), (1.96, 0.975), (-3.0, 0.001_349_9)] {
            assert!((normal(z) - share).abs() < 1e-5);
            assert!((quantile(share) - z).abs() < 1e-3);
        }
        assert!((t_95(4) - 2.776).abs() < 1e-9 && (t_95(31) - NORMAL_95).abs() < 1e-9);
    }

    #[test]
    fn too_few_or_invalid_values_have_no_interval() {
        assert_eq!(of_mean(&[]), None);
        assert_eq!(of_mean(&[1.0]), None);
        assert_eq!(of_mean(&[1.0, f64::NAN]), None);
        assert_eq!(of_mean(&[1.0, f64::INFINITY]), None);
        assert_eq!(of_ratio(&[(1.0, 2.0)]), None);
        assert_eq!(of_ratio(&[(1.0, 2.0), (f64::NAN, 1.0)]), None);
        assert_eq!(of_ratio(&[(1.0, 2.0), (1.0, -1.0)]), None);
        let undecided = Decision::of(None, within(Some(0.0), None));
        assert_eq!(undecided, Decision::Undecided);
    }

    #[test]
    fn zeros_and_infinities_decide_only_if_all_pairs_agree() {
        let at_most_1 = within(None, Some(1.0));
        // No drops on either side: ratio 1.
        let none = of_ratio(&[(0.0, 0.0), (0.0, 0.0)]).unwrap();
        assert_eq!((none.low, none.high), (1.0, 1.0));
        let all = of_ratio(&[(0.0, 3.0), (0.0, 5.0)]).unwrap();
        assert_eq!((all.low, all.mean, all.high), (0.0, 0.0, 0.0));
        assert_eq!(Decision::of(Some(all), at_most_1), Decision::Holds);
        let some = of_ratio(&[(0.0, 3.0), (6.0, 5.0), (4.0, 5.0)]).unwrap();
        assert_eq!((some.low, some.mean, some.high), (0.0, 0.8, 1.2));
        assert_eq!(Decision::of(Some(some), at_most_1), Decision::Undecided);
        let more = of_ratio(&[(1.0, 0.0), (f64::INFINITY, 2.0)]).unwrap();
        assert_eq!(Decision::of(Some(more), at_most_1), Decision::Fails);
    }

    #[test]
    fn an_interval_decides_only_if_its_bound_is_outside() {
        let interval = of_mean(&[0.9, 1.0, 1.1, 1.0, 0.95]);
        let decide = |min, max| Decision::of(interval, within(min, max));
        assert_eq!(decide(Some(0.5), None), Decision::Holds);
        assert_eq!(decide(Some(0.5), Some(1.5)), Decision::Holds);
        assert_eq!(decide(None, Some(1.0)), Decision::Undecided);
        assert_eq!(decide(Some(1.0), Some(1.5)), Decision::Undecided);
        assert_eq!(decide(Some(1.2), None), Decision::Fails);
        assert_eq!(decide(Some(0.5), Some(0.6)), Decision::Fails);
    }

    /// Textbook bootstrap: for large n, BCa, t and normal agree.
    #[test]
    fn an_interval_of_many_values_is_students() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let interval = of_mean(&values).unwrap();
        let half = t_95(99) * 29.01 / 10.0;
        assert!((interval.low - (49.5 - half)).abs() < 0.3, "{interval:?}");
        assert!((interval.high - (49.5 + half)).abs() < 0.3, "{interval:?}");
    }

    /// Coverage: of many samples, 95 % of the intervals contain the true mean.
    #[test]
    fn intervals_of_five_seeds_cover_the_true_mean() {
        let mut rng = Rng::new(7);
        let samples = 400;
        let mut covered = [0; 2];
        for _ in 0..samples {
            // A nearly normal and a skewed distribution.
            let flat: Vec<f64> = (0..5).map(|_| (0..12).map(|_| rng.unit()).sum()).collect();
            let skewed: Vec<f64> = (0..5).map(|_| (1.0 - rng.unit()).ln().abs()).collect();
            for (n, (values, truth)) in [(flat, 6.0), (skewed, 1.0)].into_iter().enumerate() {
                let interval = of_mean(&values).unwrap();
                covered[n] += usize::from(interval.low <= truth && truth <= interval.high);
            }
        }
        assert!(covered[0] * 100 >= 91 * samples, "{covered:?}");
        assert!(covered[1] * 100 >= 80 * samples, "{covered:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn an_interval_contains_the_mean_and_stays_within_the_values(
            values in prop::collection::vec(-1e6..1e6, 2..31)
        ) {
            let interval = of_mean(&values).unwrap();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let slack = 1e-6;
            prop_assert!(interval.low <= interval.mean && interval.mean <= interval.high);
            prop_assert!(least - slack <= interval.low && interval.high <= most + slack);
            prop_assert_eq!(interval.n, values.len());
        }

        #[test]
        fn the_order_of_seeds_does_not_matter(
            values in prop::collection::vec(0.1..10.0, 2..12), by in 0usize..12
        ) {
            let mut turned = values.clone();
            turned.rotate_left(by % values.len());
            prop_assert_eq!(of_mean(&values), of_mean(&turned));
        }

        #[test]
        fn the_unit_does_not_change_a_ratio(
            pairs in prop::collection::vec((0.1..10.0, 0.1..10.0), 2..12)
        ) {
            let scaled: Vec<_> = pairs.iter().map(|(a, b)| (a * 1024.0, b * 1024.0)).collect();
            let (ours, theirs) = (of_ratio(&pairs).unwrap(), of_ratio(&scaled).unwrap());
            prop_assert_eq!(ours, theirs);
        }

        #[test]
        fn more_equal_values_narrow_the_interval(
            values in prop::collection::vec(1.0..10.0, 3..6)
        ) {
            prop_assume!(values.iter().any(|value| *value != values[0]));
            let five: Vec<f64> = values.iter().copied().cycle().take(5 * values.len()).collect();
            let (few, many) = (of_mean(&values).unwrap(), of_mean(&five).unwrap());
            prop_assert!(many.relative_half_width() < few.relative_half_width());
        }

        /// Common noise cancels in a paired ratio.
        #[test]
        fn common_noise_does_not_change_a_ratio(
            noise in prop::collection::vec(0.1f64..10.0, 2..12), factor in 0.1f64..10.0
        ) {
            let pairs: Vec<_> = noise.iter().map(|noise| (noise * factor, *noise)).collect();
            let interval = of_ratio(&pairs).unwrap();
            prop_assert!(interval.relative_half_width() < 1e-6);
            prop_assert!((interval.mean / factor - 1.0).abs() < 1e-6);
        }
    }
}
