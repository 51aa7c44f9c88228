//! `highwire bench concurrency`: how many connections a server serves at the same time almost as fast as one.

use super::Problem;
use super::load::Load;
use super::report::grouped;
use super::statistics::median;
use super::verdict::Limit;
use super::watch::time;
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

/// Find the highest number of connections with almost the latency of one.
///
/// Runs a closed loop with one connection, then with twice as many until the latency is more than --factor times that of one, and then
/// halves the numbers between. The latency of a number is the median of the means of three runs, each of 1 second unless
/// --duration says something else.
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Concurrency {
    /// Where to send requests: http or https.
    url: String,

    /// How much longer than with one connection a response may take.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.2)]
    factor: f64,

    #[command(flatten)]
    load: Load,

    /// True if the generator was the limit of a run.
    #[arg(skip)]
    is_held: Cell<bool>,
}

/// The length of a run, the runs of a number of connections, and the most connections.
const LENGTH: Duration = Duration::from_secs(1);
const RUNS: usize = 3;
const MOST: usize = 1 << 16;

impl Concurrency {
    /// Runs the command. Returns its exit status.
    pub fn run(&self) -> ExitCode {
        match self.find() {
            Ok(text) => {
                println!("{text}");
                if self.is_held.get() {
                    eprintln!("highwire bench: the generator was the limit of a run, so the server may serve more");
                    return ExitCode::from(super::GENERATOR_WAS_THE_LIMIT);
                }
                ExitCode::SUCCESS
            }
            Err(problem) => problem.exit(),
        }
    }

    /// Returns the mean latency with so many connections, in seconds, and tells it.
    fn latency(&self, connections: usize) -> Result<f64, Problem> {
        let mut load = self.load.clone();
        (load.connections, load.quiet) = (connections, true);
        // All connections must have requests.
        load.requests = load.requests.map(|requests| requests.max(4 * connections));
        if load.requests.is_none() {
            load.duration = Some(load.duration.unwrap_or(LENGTH));
        }
        let (mut latencies, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let report = load.measure_answered(&self.url, None)?;
            // Connections that fail leave the others more room, so their latency says nothing.
            if report.record.errors() > 0 {
                latencies.push(f64::INFINITY);
                continue;
            }
            self.is_held.set(self.is_held.get() || report.verdict.limit == Limit::Generator);
            latencies.push(report.record.sent.mean() / 1e6);
            rates.push(report.record.rate());
        }
        let (latency, rate) = (median(&latencies), median(&rates));
        if !self.load.quiet {
            let latency =
                if latency.is_finite() { time(Duration::from_secs_f64(latency)) } else { "errors".to_owned() };
            let rate = grouped(rate as u64);
            eprintln!("{connections:>6} connections  {latency:>10}  {rate:>12} a second");
        }
        Ok(latency)
    }

    fn find(&self) -> Result<String, Problem> {
        if self.factor.is_nan() || self.factor <= 1.0 {
            return Err(Problem::Options("--factor is more than 1".into()));
        }
        if self.load.rate.is_some() || self.load.stages.is_some() {
            return Err(Problem::Options("a concurrency is that of a closed loop, without --rate and --stages".into()));
        }
        let base = self.latency(1)?;
        if !base.is_finite() {
            return Err(Problem::Failed(format!("{}: requests fail with one connection already", self.url)));
        }
        let (mut low, mut high) = (1, 2);
        while high <= MOST && self.latency(high)? <= base * self.factor {
            (low, high) = (high, high * 2);
        }
        while high <= MOST && high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.latency(middle)? <= base * self.factor { low = middle } else { high = middle }
        }
        let base = time(Duration::from_secs_f64(base));
        Ok(format!("{low} connections have at most {} times the latency of one, {base}", self.factor))
    }
}
