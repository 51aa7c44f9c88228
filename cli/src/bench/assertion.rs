//! Conditions on the figures of a run, such as `p99<5ms, errors<0.1%`.

use super::plan;
use super::report::Report;

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// A quantile of the latency from the intended times.
    Quantile(f64),
    /// Their mean.
    Mean,
    /// Their maximum.
    Max,
    /// Expected responses a second.
    Rate,
    /// The share of the requests that failed, or were due and not sent.
    Errors,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    text: String,
    measure: Measure,
    is_less: bool,
    bound: f64,
}

impl Assertion {
    /// Reads conditions that commas separate.
    ///
    /// # Errors
    /// Returns a text that names the wrong condition.
    pub fn parse_all(text: &str) -> Result<Vec<Assertion>, String> {
        text.split(',')
            .map(|part| Assertion::parse(part.trim()).map_err(|error| format!("{part:?}: {error}")))
            .collect()
    }

    fn parse(text: &str) -> Result<Assertion, String> {
        let at = text.find(['<', '>']).ok_or("a condition has < or >, as in p99<5ms")?;
        let (name, bound) = (text[..at].trim(), text[at + 1..].trim());
        let measure = match name {
            "mean" => Measure::Mean,
            "max" => Measure::Max,
            "rate" => Measure::Rate,
            "errors" => Measure::Errors,
            _ => {
                Measure::Quantile(quantile(name).ok_or("a figure is one of p50, p99.9, …, mean, max, rate and errors")?)
            }
        };
        let bound = match measure {
            Measure::Rate => plan::number(bound)?,
            Measure::Errors => {
                let (digits, factor) = bound.strip_suffix('%').map_or((bound, 1.0), |digits| (digits, 0.01));
                digits.trim().parse::<f64>().map_err(|_| "a share of errors is a number such as 0.1%".to_owned())?
                    * factor
            }
            _ => plan::duration(bound)?.as_secs_f64(),
        };
        Ok(Assertion { text: text.to_owned(), measure, is_less: text.as_bytes()[at] == b'<', bound })
    }

    /// Returns `None` if the condition holds, otherwise a line that says what does not.
    pub fn broken_by(&self, report: &Report) -> Option<String> {
        let found = report.measure(self.measure);
        // A run without a response has no latency, so no condition on it holds.
        let is_measured = matches!(self.measure, Measure::Rate | Measure::Errors) || !report.record.intended.is_empty();
        let holds = is_measured && if self.is_less { found < self.bound } else { found > self.bound };
        let shown = match self.measure {
            Measure::Rate => format!("{found:.1}"),
            Measure::Errors => format!("{:.4} %", found * 100.0),
            _ => super::watch::time(std::time::Duration::from_secs_f64(found)),
        };
        (!holds).then(|| format!("{} does not hold: it is {shown}", self.text))
    }
}

fn quantile(name: &str) -> Option<f64> {
    let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let read = Assertion::parse_all("p99.9<5ms, errors < 0.1%,rate>10k").expect("conditions");
        let parts: Vec<_> = read.iter().map(|one| (one.measure, one.is_less, one.bound)).collect();
        let expected = [
            (Measure::Quantile(0.9990000000000001), true, 0.005),
            (Measure::Errors, true, 0.001),
            (Measure::Rate, false, 1e4),
        ];
        for (found, expected) in parts.iter().zip(expected) {
            assert_eq!(found.1, expected.1);
            assert!((found.2 - expected.2).abs() < 1e-9, "{found:?}");
        }
        for text in ["", "p99", "p101<1s", "p99<fast", "speed>1", "errors<x%", "p99<5ms,"] {
            assert!(Assertion::parse_all(text).is_err(), "{text}");
        }
    }
}
