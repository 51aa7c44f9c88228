//! Medians and their intervals of confidence, for figures whose distribution is not known.

/// The samples with replacement from which an interval is made.
const SAMPLES: usize = 2000;

/// Returns the median; 0 for no values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
        count => sorted[count / 2],
    }
}

/// Returns the interval that contains the median of the distribution with a confidence of about 95 %, by the bootstrap: the
/// medians of many samples with replacement, without the lowest and the highest 2.5 %. Few values make it too narrow.
pub fn interval(values: &[f64], random: &mut fastrand::Rng) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mut sample = vec![0.0; values.len()];
    let mut medians: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            sample.iter_mut().for_each(|value| *value = values[random.usize(..values.len())]);
            median(&sample)
        })
        .collect();
    medians.sort_by(f64::total_cmp);
    (medians[SAMPLES / 40], medians[SAMPLES - 1 - SAMPLES / 40])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        for (values, expected) in [(&[][..], 0.0), (&[3.0], 3.0), (&[5.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 2.0, 9.0], 3.0)]
        {
            assert_eq!(median(values), expected, "{values:?}");
        }
    }

    /// Simulates many comparisons of which the true median is known: the interval contains it in about 95 % of them.
    #[test]
    fn intervals_contain_the_median_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(11);
        for count in [8, 10, 20] {
            let mut contained = 0;
            for _ in 0..300 {
                // An exponential distribution, which is not symmetric, with the median ln 2.
                let values: Vec<f64> = (0..count).map(|_| -(1.0 - random.f64()).ln()).collect();
                let (low, high) = interval(&values, &mut random);
                contained += usize::from((low..=high).contains(&std::f64::consts::LN_2));
            }
            assert!((270..=299).contains(&contained), "{count} values: {contained} of 300");
        }
    }
}
