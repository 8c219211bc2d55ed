//! Confidence interval of the mean of a few repetitions.
//!
//! The interval is defined as in netperf 2.7: twice Student's t times the standard error, relative to the mean. It is
//! the full width, so 5 % means ± 2.5 %.

/// Probability that the interval contains the true mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfidenceLevel {
    /// 95 %.
    Percent95,
    /// 99 %.
    Percent99,
}

/// Two-sided values of Student's distribution for 1, 2, … degrees of freedom, to three decimals as in printed tables.
/// netperf uses the same values, so its decisions are reproduced exactly.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// Like `T95`, for 99 %.
const T99: [f64; 30] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012,
    2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779,
    2.771, 2.763, 2.756, 2.750,
];

impl ConfidenceLevel {
    /// Returns the level for 95 or 99 percent, or None for other values.
    #[must_use]
    pub const fn from_percent(percent: u8) -> Option<Self> {
        match percent {
            95 => Some(Self::Percent95),
            99 => Some(Self::Percent99),
            _ => None,
        }
    }

    /// Two-sided value of Student's distribution: the true mean is within `t` standard errors of the measured one with
    /// this probability. Infinite for 0 degrees of freedom.
    #[must_use]
    pub fn student_t(self, degrees: usize) -> f64 {
        let (table, normal) = match self {
            Self::Percent95 => (&T95, 1.959_963_984_540_054),
            Self::Percent99 => (&T99, 2.575_829_303_548_900_4),
        };
        match degrees {
            0 => f64::INFINITY,
            1..=30 => table[degrees - 1],
            _ => beyond_the_table(normal, degrees as f64),
        }
    }
}

/// Cornish-Fisher expansion around the normal distribution (Abramowitz and Stegun, 26.7.5). Above 30 degrees of freedom
/// it is correct to seven digits.
fn beyond_the_table(x: f64, n: f64) -> f64 {
    let x2 = x * x;
    let g1 = (x2 + 1.0) * x / 4.0;
    let g2 = ((5.0 * x2 + 16.0) * x2 + 3.0) * x / 96.0;
    let g3 = (((3.0 * x2 + 19.0) * x2 + 17.0) * x2 - 15.0) * x / 384.0;
    let g4 = ((((79.0 * x2 + 776.0) * x2 + 1482.0) * x2 - 1920.0) * x2 - 945.0) * x / 92_160.0;
    x + (g1 + (g2 + (g3 + g4 / n) / n) / n) / n
}

/// Arithmetic mean; 0 for no values.
#[must_use]
pub fn mean_of(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Width of the confidence interval of the mean, in percent of that mean. None for fewer than two values.
///
/// 2·t·√(v ÷ (n−1)) ÷ mean, with the variance v of the values themselves (divided by n), as in netperf 2.7. The width
/// is 0 if all values are equal, and infinite if the mean of different values is 0.
#[must_use]
pub fn interval_width(level: ConfidenceLevel, values: &[f64]) -> Option<f64> {
    let degrees = values.len().checked_sub(1).filter(|n| *n > 0)?;
    let mean = mean_of(values);
    // E[x²] − mean² would lose the digits of large values that hardly differ.
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    if squares == 0.0 {
        return Some(0.0);
    }
    let variance = squares / values.len() as f64;
    let half = level.student_t(degrees) * (variance / degrees as f64).sqrt();
    Some((200.0 * half / mean).abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Γ(n/2) for a whole n above 0.
    fn gamma_of_half(n: u32) -> f64 {
        match n {
            1 => std::f64::consts::PI.sqrt(),
            2 => 1.0,
            _ => (f64::from(n) / 2.0 - 1.0) * gamma_of_half(n - 2),
        }
    }

    /// Reference: probability between −t and t, integrated from the density by Simpson's rule.
    fn between(t: f64, degrees: u32) -> f64 {
        let n = f64::from(degrees);
        let factor = gamma_of_half(degrees + 1) / gamma_of_half(degrees);
        let factor = factor / (n * std::f64::consts::PI).sqrt();
        let density = |x: f64| factor * (1.0 + x * x / n).powf(-f64::midpoint(n, 1.0));
        let (parts, mut sum) = (20_000_u32, density(0.0) + density(t));
        let step = t / f64::from(parts);
        for part in 1..parts {
            let weight = if part % 2 == 1 { 4.0 } else { 2.0 };
            sum += weight * density(step * f64::from(part));
        }
        2.0 * sum * step / 3.0
    }

    #[test]
    fn students_values_enclose_what_they_should() {
        for degrees in (1..=33).chain([60, 120, 299]) {
            for (level, share) in [
                (ConfidenceLevel::Percent95, 0.95),
                (ConfidenceLevel::Percent99, 0.99),
            ] {
                let t = level.student_t(degrees as usize);
                // Three decimals in the table, seven digits beyond it.
                let off = if degrees <= 30 { 0.000_51 } else { 0.000_001 };
                let (below, above) = (between(t - off, degrees), between(t + off, degrees));
                assert!(
                    below < share && share < above,
                    "{degrees} degrees, {share}: {t} gives {below} to {above}"
                );
            }
        }
    }

    #[test]
    fn students_values_reach_the_normal_ones() {
        let t = ConfidenceLevel::Percent95.student_t(10_000_000);
        assert!((t - 1.959_964).abs() < 0.000_001, "{t}");
        assert!(ConfidenceLevel::Percent99.student_t(0).is_infinite());
    }

    #[test]
    fn the_width_is_netperfs() {
        // Mean 100, variance 200/3 by n, t = 4.303: 2·4.303·√(66.667/2)/100.
        let width = interval_width(ConfidenceLevel::Percent95, &[90.0, 100.0, 110.0]).unwrap();
        assert!((width - 49.687).abs() < 0.001, "{width}");
        let width = interval_width(ConfidenceLevel::Percent99, &[99.0, 101.0]).unwrap();
        // Mean 100, variance 1, t = 63.657, one degree of freedom.
        assert!((width - 127.314).abs() < 0.001, "{width}");
    }

    #[test]
    fn the_width_of_nothing_known_is_none() {
        for level in [ConfidenceLevel::Percent95, ConfidenceLevel::Percent99] {
            assert_eq!(interval_width(level, &[]), None);
            assert_eq!(interval_width(level, &[1.0]), None);
            // Unmeasured CPU use is -1 each time and never blocks.
            assert_eq!(interval_width(level, &[-1.0; 3]), Some(0.0));
            assert_eq!(interval_width(level, &[0.0; 3]), Some(0.0));
            assert_eq!(interval_width(level, &[-1.0, 1.0]), Some(f64::INFINITY));
        }
    }

    #[test]
    fn large_values_keep_their_digits() {
        let values = [1e12, 1e12 + 1.0, 1e12 + 2.0];
        let width = interval_width(ConfidenceLevel::Percent95, &values).unwrap();
        let expected = 200.0 * 4.303 * (2.0_f64 / 3.0 / 2.0).sqrt() / 1e12;
        assert!((width / expected - 1.0).abs() < 1e-6, "{width} {expected}");
    }
}
