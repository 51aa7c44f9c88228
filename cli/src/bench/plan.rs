//! When requests are due: the rates of an open loop, and the intended time of each request.

use std::str::FromStr;
use std::time::Duration;

/// The highest rate that is accepted, in requests a second.
pub const MOST_RATE: f64 = 1e8;

/// A part of a run: the rate goes from one number of requests a second to another, in a straight line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    /// Requests a second at the start.
    pub from: f64,
    /// Requests a second at the end.
    pub to: f64,
    /// The length, in seconds.
    pub seconds: f64,
}

/// The rate of `--rate`, which may have a length of its own: `5k`, `1k..50k/60s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second at the start.
    pub from: f64,
    /// Requests a second at the end.
    pub to: f64,
    /// The length, if the text has one.
    pub length: Option<Duration>,
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let (rates, length) = match text.split_once('/') {
            Some((rates, length)) => (rates, Some(duration(length)?)),
            None => (text, None),
        };
        let (from, to) = match rates.split_once("..") {
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(rates)?, number(rates)?),
        };
        if from.max(to) <= 0.0 || from.max(to) > MOST_RATE {
            return Err(format!("a rate is more than 0 and at most {MOST_RATE} requests a second"));
        }
        Ok(Rate { from, to, length })
    }
}

/// Reads a number that may end with `k` (thousands) or `m` (millions).
pub fn number(text: &str) -> Result<f64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, factor) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 1e3),
        Some(b'm') => (&lower[..lower.len() - 1], 1e6),
        _ => (&lower[..], 1.0),
    };
    let value: f64 = digits.parse().map_err(|_| format!("{text:?} is no number such as 500, 5k or 1.5m"))?;
    if value.is_finite() && value >= 0.0 { Ok(value * factor) } else { Err(format!("{text:?} is not 0 or more")) }
}

/// Reads a length of time: a number with `us`, `ms`, `s`, `m` or `h`; without a unit, seconds. At most a week.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[end..] {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{unit:?} is no unit of time; there are us, ms, s, m and h")),
    };
    let value: f64 = text[..end].parse().map_err(|_| format!("{text:?} is no time such as 10s, 500ms or 1m"))?;
    let seconds = value * factor;
    if (1e-6..=7.0 * 86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("a time is more than 0 and at most a week".into())
    }
}

/// Reads the lines of a file of stages: `RATE LENGTH` or `FROM..TO LENGTH`. `#` begins a comment.
pub fn stages(text: &str) -> Result<Vec<Stage>, String> {
    let mut stages = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let fail = |error: String| format!("line {}: {error}", index + 1);
        let (rate, length) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| fail("a stage is a rate and a length, such as `5k 30s` or `1k..5k 1m`".into()))?;
        let rate: Rate = rate.parse().map_err(fail)?;
        let seconds = duration(length).map_err(fail)?.as_secs_f64();
        stages.push(Stage { from: rate.from, to: rate.to, seconds });
    }
    if stages.is_empty() { Err("there is no stage".into()) } else { Ok(stages) }
}

/// How the requests of an open loop are distributed in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrival {
    /// Evenly.
    #[default]
    Constant,
    /// As independent users send them: the gaps are exponentially distributed.
    Poisson,
}

/// The intended times of one worker's requests, in seconds from the start.
///
/// Events of a unit rate are mapped to times by the inverse of the area under the rate: constant events are at whole numbers,
/// of which each worker has its share; those of a Poisson process have exponential gaps, longer by the number of workers.
#[derive(Debug)]
pub struct Schedule {
    stages: Vec<Stage>,
    arrival: Arrival,
    workers: f64,
    /// The events up to the next one, of all workers.
    position: f64,
    /// The current stage, the time of its start, and the events before it.
    stage: usize,
    begun: f64,
    before: f64,
    random: fastrand::Rng,
}

impl Schedule {
    /// Returns the schedule of the worker with this number, of so many.
    pub fn new(stages: Vec<Stage>, arrival: Arrival, worker: usize, workers: usize, seed: u64) -> Schedule {
        let random = fastrand::Rng::with_seed(seed.wrapping_add(worker as u64));
        let (stage, begun, before) = (0, 0.0, 0.0);
        let mut schedule =
            Schedule { stages, arrival, workers: workers as f64, position: 0.0, stage, begun, before, random };
        schedule.position = match arrival {
            Arrival::Constant => worker as f64,
            Arrival::Poisson => schedule.gap(),
        };
        schedule
    }

    fn gap(&mut self) -> f64 {
        match self.arrival {
            Arrival::Constant => self.workers,
            // The number is in (0, 1], so its logarithm is finite.
            Arrival::Poisson => -(1.0 - self.random.f64()).ln() * self.workers,
        }
    }

    /// Returns how many requests there are from the next one on until a time, in seconds from the start.
    pub fn left(&self, until: f64) -> u64 {
        let mut begun = 0.0;
        let events = self.stages.iter().map(|stage| {
            let time = (until - begun).clamp(0.0, stage.seconds);
            begun += stage.seconds;
            let rate = stage.from + (stage.to - stage.from) * time / stage.seconds;
            f64::midpoint(stage.from, rate) * time
        });
        ((events.sum::<f64>() - self.position).max(0.0) / self.workers) as u64
    }

    /// Returns the intended time of the next request, and goes on to the one behind it. `None` if the plan has ended.
    pub fn next_time(&mut self) -> Option<f64> {
        loop {
            let stage = *self.stages.get(self.stage)?;
            let events = (stage.from + stage.to) / 2.0 * stage.seconds;
            let wanted = self.position - self.before;
            if wanted < events {
                self.position += self.gap();
                return Some(self.begun + time_of(stage, wanted));
            }
            self.before += events;
            self.begun += stage.seconds;
            self.stage += 1;
        }
    }
}

/// Returns the time in the stage at which it has had so many events.
fn time_of(stage: Stage, events: f64) -> f64 {
    // from·t + slope·t²/2 = events, in a form that is exact for a slope of 0.
    let slope = (stage.to - stage.from) / stage.seconds;
    let root = (stage.from * stage.from + 2.0 * slope * events).max(0.0).sqrt();
    if stage.from + root > 0.0 { 2.0 * events / (stage.from + root) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_read() {
        for (text, expected) in [("5k", (5000.0, 5000.0, None)), ("1k..50k/60s", (1000.0, 50_000.0, Some(60)))] {
            let rate: Rate = text.parse().expect(text);
            assert_eq!((rate.from, rate.to, rate.length.map(|length| length.as_secs())), expected, "{text}");
        }
        for text in ["", "0", "-1", "5x", "1..", "1e12", "5k/", "5k/3d", "nan", "inf"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!(duration("1.5ms").expect("a time"), Duration::from_micros(1500));
        assert!(duration("2w").is_err() && duration("9999h").is_err() && duration("").is_err());
    }

    #[test]
    fn stages_are_read_and_a_wrong_line_is_named() {
        let read = stages("1k 10s # warm\n\n1k..2k 1m\n").expect("stages");
        assert_eq!(read, [Stage { from: 1e3, to: 1e3, seconds: 10.0 }, Stage { from: 1e3, to: 2e3, seconds: 60.0 }]);
        assert!(stages("5 5s\nfast 5s").expect_err("a mistake").starts_with("line 2: "));
        assert!(stages("# nothing").is_err());
    }

    fn times(stages: &[Stage], arrival: Arrival, workers: usize) -> Vec<f64> {
        let mut all: Vec<f64> = (0..workers)
            .flat_map(|worker| {
                let mut schedule = Schedule::new(stages.to_vec(), arrival, worker, workers, 7);
                std::iter::from_fn(move || schedule.next_time())
            })
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn constant_requests_of_all_workers_together_are_evenly_spaced() {
        let all = times(&[Stage { from: 100.0, to: 100.0, seconds: 2.0 }], Arrival::Constant, 3);
        assert_eq!(all.len(), 200);
        for (index, time) in all.iter().enumerate() {
            assert!((time - index as f64 / 100.0).abs() < 1e-9, "{index}: {time}");
        }
    }

    #[test]
    fn a_ramp_has_the_requests_under_its_line() {
        // From 0 to 100 in 10 seconds: t seconds have 5·t² requests.
        let ramp = [Stage { from: 0.0, to: 100.0, seconds: 10.0 }, Stage { from: 100.0, to: 0.0, seconds: 10.0 }];
        let all = times(&ramp, Arrival::Constant, 2);
        assert_eq!(all.len(), 1000);
        for (index, time) in all.iter().take(500).enumerate() {
            assert!((5.0 * time * time - index as f64).abs() < 1e-6, "{index}: {time}");
        }
    }

    #[test]
    fn what_is_left_is_what_would_come() {
        let stages = vec![Stage { from: 0.0, to: 100.0, seconds: 10.0 }, Stage { from: 50.0, to: 50.0, seconds: 4.0 }];
        let begun = || {
            let mut schedule = Schedule::new(stages.clone(), Arrival::Constant, 1, 3, 0);
            (0..50).for_each(|_| _ = schedule.next_time());
            schedule
        };
        for until in [5.0, 10.0, 12.0, 14.0] {
            let (left, mut schedule) = (begun().left(until), begun());
            let come = std::iter::from_fn(|| schedule.next_time()).take_while(|time| *time < until).count() as u64;
            assert!(left.abs_diff(come) <= 1, "{until}: {left} and {come}");
        }
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_their_distribution() {
        let all = times(&[Stage { from: 1000.0, to: 1000.0, seconds: 100.0 }], Arrival::Poisson, 4);
        let count = all.len() as f64;
        // 100,000 are expected, with a standard deviation of 316.
        assert!((count - 100_000.0).abs() < 5.0 * 316.0, "{count}");
        let gaps: Vec<f64> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        // An exponential distribution has a standard deviation equal to its mean.
        assert!((deviation / mean - 1.0).abs() < 0.03, "{deviation} of {mean}");
    }
}
