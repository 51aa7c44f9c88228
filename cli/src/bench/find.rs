//! `--find`: the highest rate at which conditions hold.
//!
//! A closed loop tells the capacity, above which no rate can hold. Then the rates between are halved. A rate is decided when two
//! runs agree, so that one disturbance of the machine does not decide it.

use super::Problem;
use super::assertion::Assertion;
use super::load::Load;
use super::plan::Rate;
use super::report::{Report, grouped};
use super::verdict::Limit;
use highwire_io::signal::{self, Signal};
use std::time::Duration;

/// The length of a run, unless `--duration` says something else.
const LENGTH: Duration = Duration::from_secs(3);

/// The search ends when the highest rate that holds and the lowest that does not differ by less than this share.
const EXACT: f64 = 0.03;

/// The most rates that are tried.
const MOST_RATES: usize = 16;

/// What was found.
pub(super) struct Found {
    /// The report of the highest rate that holds; `None` if none does.
    pub(super) best: Option<Report>,
    /// The line of the last rate that was tried.
    pub(super) last: String,
    /// True if the generator was the limit of a run, so that the server may be able to do more.
    pub(super) is_held: bool,
}

/// Searches for the highest rate.
pub(super) fn find(load: &Load, url: &str, pid: Option<u32>, conditions: &[Assertion]) -> Result<Found, Problem> {
    let mut load = load.clone();
    load.duration = Some(load.duration.unwrap_or(LENGTH));
    let tells = !std::mem::replace(&mut load.quiet, true);
    let capacity = load.measure_whole(url, pid)?;
    let (mut low, mut high) = (0.0, capacity.record.rate());
    let mut found = Found { best: None, last: String::new(), is_held: capacity.verdict.limit == Limit::Generator };
    let tell = |found: &mut Found, line: String| {
        if tells {
            eprintln!("{line}");
        }
        found.last = line;
    };
    tell(&mut found, format!("{:>12} a second: the capacity (closed loop)", grouped(high.round() as u64)));
    if high < 1.0 {
        return Err(Problem::Failed(format!("{url}: no expected response")));
    }
    let mut next = high;
    for _ in 0..MOST_RATES {
        load.rate = Some(Rate { from: next, to: next, length: None });
        let (report, broken) = match decide(&load, url, pid, conditions) {
            // What was found before is reported.
            Err(_) if signal::count(Signal::Stop) > 0 && found.best.is_some() => break,
            decided => decided?,
        };
        found.is_held |= report.verdict.limit == Limit::Generator;
        let rate = grouped(next.round() as u64);
        tell(&mut found, format!("{rate:>12} a second: {}", broken.as_deref().unwrap_or("holds")));
        if broken.is_none() {
            (low, found.best) = (next, Some(report));
        } else {
            high = next;
        }
        if high - low < high * EXACT || next < 1.0 {
            break;
        }
        next = f64::midpoint(low, high);
    }
    Ok(found)
}

/// Runs a rate until two runs agree whether the conditions hold. Returns the last of these, and the broken condition.
fn decide(
    load: &Load,
    url: &str,
    pid: Option<u32>,
    conditions: &[Assertion],
) -> Result<(Report, Option<String>), Problem> {
    let (mut held, mut broke) = (0, 0);
    loop {
        let report = load.measure_whole(url, pid)?;
        let broken = conditions.iter().find_map(|condition| condition.broken_by(&report));
        let count = if broken.is_none() { &mut held } else { &mut broke };
        *count += 1;
        if *count == 2 {
            return Ok((report, broken));
        }
    }
}
