// SPDX-License-Identifier: GPL-2.0
//! Means over seeds, with confidence intervals.

use xdc_metric::interval::t_95;

/// A mean and the half width of its 95 % confidence interval; None for a single value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    pub ci95: Option<f64>,
}

/// Estimates from values; None without any.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let ci95 = (n > 1).then(|| {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (n - 1) as f64 / n as f64).sqrt();
        error * t_95(n - 1)
    });
    Some(Estimate { mean, ci95 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_use_students_t() {
        assert_eq!(estimate(&[]), None);
        let one = estimate(&[3.0]).unwrap();
        assert_eq!((one.mean, one.ci95), (3.0, None));
        // Standard deviation 1, error 1 / sqrt 3, t 4.303.
        let three = estimate(&[1.0, 2.0, 3.0]).unwrap();
        assert!((three.ci95.unwrap() - 4.303 / 3f64.sqrt()).abs() < 1e-9);
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        assert!(estimate(&many).unwrap().ci95.unwrap() < 6.0);
    }
}
