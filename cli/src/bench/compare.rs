//! `highwire bench compare`: which of two servers is faster, and by how much.
//!
//! A round runs A, B, B, A, so that what changes slowly on the machine hits both alike. The two runs of A in a round show the
//! noise. A difference is one whose interval of confidence does not contain 1 and does
//! not touch that of the noise.

use super::Problem;
use super::load::Load;
use super::report::Report;
use super::statistics::{interval, median};
use super::verdict::Limit;
use highwire_io::signal::{self, Signal};
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// Compare two servers in rounds of A, B, B, A.
///
/// The ratios are those of B over A in each round, as the median of all rounds with an interval of 95 %. The first ratio, A over
/// A, shows the noise of the machine: a difference that is not larger means nothing. Each run lasts 2 seconds unless --duration
/// says something else, behind one run of each server to warm up.
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Compare {
    /// The URL of the server A.
    a: String,

    /// The URL of the server B.
    b: String,

    /// The number of rounds.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = super::options::at_least_one)]
    rounds: usize,

    /// The process of the server A, to compare CPU.
    #[arg(long, value_name = "PID", requires = "pid_b")]
    pid_a: Option<u32>,

    /// The process of the server B.
    #[arg(long, value_name = "PID", requires = "pid_a")]
    pid_b: Option<u32>,

    #[command(flatten)]
    load: Load,
}

/// For each figure, two lists: of A over A and of B over A, or of A and of B.
type Ratios = [(Vec<f64>, Vec<f64>); 3];

/// The fewest rounds from which an interval is made.
const FEWEST: usize = 5;

/// The length of a run.
const LENGTH: Duration = Duration::from_secs(2);

/// The figures that are compared, with what it means if B has more.
const FIGURES: [(&str, bool); 3] =
    [("responses a second", true), ("p99 from the intended time", false), ("server CPU a response", false)];

fn figures(report: &Report) -> [Option<f64>; 3] {
    let answered = report.record.answered() as f64;
    let p99 = report.record.intended.value_at_quantile(0.99) as f64;
    let cpu = report.watched.server_cpu().map(|cpu| cpu / answered);
    [Some(report.record.rate()), Some(p99), cpu]
}

impl Compare {
    /// Runs the command. Returns its exit status.
    pub fn run(&self) -> ExitCode {
        match self.compare() {
            Ok((text, is_held)) => {
                let _ = std::io::stdout().write_all(text.as_bytes());
                if is_held { ExitCode::from(super::GENERATOR_WAS_THE_LIMIT) } else { ExitCode::SUCCESS }
            }
            Err(problem) => problem.exit(),
        }
    }

    /// Returns the report, and true if the generator was the limit of a run.
    fn compare(&self) -> Result<(String, bool), Problem> {
        if self.load.has_fixed_address() {
            return Err(Problem::Options(
                "compare needs two servers, so --connect-to and --unix cannot be used".into(),
            ));
        }
        let mut load = self.load.clone();
        load.quiet = true;
        if load.duration.is_none()
            && load.requests.is_none()
            && load.stages.is_none()
            && load.rate.is_none_or(|rate| rate.length.is_none())
        {
            load.duration = Some(LENGTH);
        }
        let (most_errors, held) = (Cell::new(0.0_f64), Cell::new(0_u32));
        let run = |url: &str, pid| {
            let report = load.measure_answered(url, pid)?;
            let errors = report.measure(super::assertion::Measure::Errors);
            most_errors.set(most_errors.get().max(errors));
            if report.verdict.limit == Limit::Generator {
                held.set(held.get() + 1);
            }
            Ok(figures(&report))
        };
        let (a, b) = (|| run(&self.a, self.pid_a), || run(&self.b, self.pid_b));
        a()?;
        b()?;
        // The ratios by figure: A over A, and B over A.
        let mut ratios: Ratios = Default::default();
        let mut values: Ratios = Default::default();
        for round in 1..=self.rounds {
            let stopped = || signal::count(Signal::Stop) > 0;
            let mut runs = [[None; 3]; 4];
            for (place, run) in [&a as &dyn Fn() -> Result<_, Problem>, &b, &b, &a].into_iter().enumerate() {
                match run() {
                    Ok(figures) => runs[place] = figures,
                    // A round that is cut short says nothing, but those before it do.
                    Err(_) if stopped() && round > 1 => {
                        return Ok(self.finish(&ratios, &values, most_errors.get(), held.get()));
                    }
                    Err(problem) => return Err(problem),
                }
            }
            let [first, second, third, fourth] = runs;
            for figure in 0..FIGURES.len() {
                let (Some(a1), Some(b1)) = (first[figure], second[figure]) else { continue };
                let (Some(b2), Some(a2)) = (third[figure], fourth[figure]) else { continue };
                // A figure of 0, such as the CPU of an idle process, has no ratio.
                if a1 > 0.0 && a2 > 0.0 {
                    ratios[figure].0.push(a2 / a1);
                    ratios[figure].1.push((b1 + b2) / (a1 + a2));
                    values[figure].0.extend([a1, a2]);
                    values[figure].1.extend([b1, b2]);
                }
            }
            if !self.load.quiet {
                eprintln!("round {round} of {}", self.rounds);
            }
        }
        Ok(self.finish(&ratios, &values, most_errors.get(), held.get()))
    }

    /// Returns the report, and true if the generator was the limit of a run.
    fn finish(&self, ratios: &Ratios, values: &Ratios, most_errors: f64, held: u32) -> (String, bool) {
        let mut text = self.text(ratios, values);
        if most_errors > 0.0 {
            let _ = writeln!(text, "\nup to {:.3} % of the requests of a run failed", most_errors * 100.0);
        }
        if held > 0 {
            let _ = writeln!(text, "\nthe generator was the limit in {held} runs, so a difference may be hidden");
        }
        (text, held > 0)
    }

    fn text(&self, ratios: &Ratios, values: &Ratios) -> String {
        let mut random = fastrand::Rng::with_seed(1);
        let mut text = format!("A {}\nB {}\n{} rounds of A, B, B, A\n", self.a, self.b, ratios[0].0.len());
        for (figure, (name, is_better)) in FIGURES.into_iter().enumerate() {
            let ((noise, found), (of_a, of_b)) = (&ratios[figure], &values[figure]);
            if found.is_empty() {
                continue;
            }
            let shown = |value: f64| match figure {
                0 => super::report::grouped(value.round() as u64),
                1 => super::watch::time(Duration::from_secs_f64(value / 1e6)),
                _ => format!("{:.2} µs", value * 1e6),
            };
            let ((noise_low, noise_high), (low, high)) = (interval(noise, &mut random), interval(found, &mut random));
            let _ = writeln!(text, "\n{name}: A {}, B {}", shown(median(of_a)), shown(median(of_b)));
            let _ = writeln!(text, "  A over A  {:.3} ({noise_low:.3} to {noise_high:.3})", median(noise));
            let said = if found.len() < FEWEST {
                "too few rounds to tell"
            } else {
                judge((low, high), (noise_low, noise_high), is_better)
            };
            let _ = writeln!(text, "  B over A  {:.3} ({low:.3} to {high:.3}): {said}", median(found));
        }
        text
    }
}

/// Says what the interval of the ratio of B over A shows. A difference counts if the interval is on one side of 1, and outside of
/// that of A over A.
fn judge((low, high): (f64, f64), (noise_low, noise_high): (f64, f64), is_better: bool) -> &'static str {
    let (is_more, is_less) = (low > noise_high.max(1.0), high < noise_low.min(1.0));
    match (is_more, is_less) {
        (false, false) if low > 1.0 || high < 1.0 => "no difference beyond the noise of A",
        (false, false) => "no difference shown",
        _ if is_more == is_better => "B is better",
        _ => "A is better",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_that_contains_1_shows_nothing() {
        let noise = (0.97, 1.05);
        for (low, high, is_better, expected) in [
            (0.9, 1.1, true, "no difference shown"),
            (1.0, 1.2, true, "no difference shown"),
            (1.02, 1.2, true, "no difference beyond the noise of A"),
            (0.9, 0.98, true, "no difference beyond the noise of A"),
            (1.1, 1.2, true, "B is better"),
            (1.1, 1.2, false, "A is better"),
            (0.7, 0.9, true, "A is better"),
            (0.7, 0.9, false, "B is better"),
        ] {
            assert_eq!(judge((low, high), noise, is_better), expected, "{low} to {high}");
        }
    }
}
