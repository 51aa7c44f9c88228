//! The report of a run: as text, JSON, CSV and an HDR histogram's percentiles.

use super::assertion::Measure;
use super::record::{Fault, Record};
use super::verdict::Verdict;
use super::watch::{Watched, time};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The version of the JSON report. It changes when a field is renamed or removed.
pub const VERSION: u32 = 1;

/// The quantiles of a report, with their names.
pub const QUANTILES: [(&str, f64); 7] =
    [("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// What was run.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// The URL.
    pub url: String,
    /// The method.
    pub method: String,
    /// The version of HTTP, such as `HTTP/1.1`, and TLS.
    pub protocol: String,
    /// The connections.
    pub connections: usize,
    /// The most requests of a connection without a response: streams, or pipelined requests.
    pub depth: usize,
    /// False with a connection for each request.
    pub keep_alive: bool,
    /// The threads that generate load.
    pub threads: usize,
    /// The engine of the event loops.
    pub engine: String,
    /// The rate of an open loop, as it was asked for; `None` for a closed loop.
    pub rate: Option<String>,
}

/// A run with everything that is reported of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was run.
    pub setup: Setup,
    /// What was measured.
    pub record: Record,
    /// What was observed.
    pub watched: Watched,
    /// What the limit was.
    pub verdict: Verdict,
}

#[derive(Serialize)]
struct Latency {
    count: u64,
    min: u64,
    mean: f64,
    stddev: f64,
    max: u64,
    percentiles: BTreeMap<&'static str, u64>,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Latency {
        Latency {
            count: histogram.len(),
            min: histogram.min(),
            mean: histogram.mean(),
            stddev: histogram.stdev(),
            max: histogram.max(),
            percentiles: QUANTILES.iter().map(|(name, at)| (*name, histogram.value_at_quantile(*at))).collect(),
        }
    }
}

#[derive(Serialize)]
struct Errors {
    count: u64,
    example: String,
}

#[derive(Serialize)]
struct Json<'a> {
    version: u32,
    #[serde(flatten)]
    setup: &'a Setup,
    seconds: f64,
    requests: u64,
    responses: u64,
    late_responses: u64,
    unsent_requests: u64,
    responses_per_second: f64,
    received_bytes: u64,
    sent_bytes: u64,
    statuses: &'a BTreeMap<u16, u64>,
    errors: BTreeMap<&'static str, Errors>,
    latency_from_intended_us: Latency,
    latency_from_send_us: Latency,
    send_lag_us: Latency,
    connect_us: Latency,
    tls_handshake_us: Latency,
    generator_cpu_us_per_response: f64,
    server_cpu_us_per_response: Option<f64>,
    watched: &'a Watched,
    verdict: &'a Verdict,
}

/// Groups the digits of a number by thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the rows of a table of latencies: the mean, the quantiles and the maximum, each with its values in the histograms. A
/// histogram without values has `-`.
pub(super) fn latencies<const N: usize>(histograms: [&Histogram<u64>; N]) -> Vec<(&'static str, [String; N])> {
    let row =
        |of: &dyn Fn(&Histogram<u64>) -> u64| {
            histograms.map(|histogram| {
                if histogram.is_empty() { "-".to_owned() } else { time(Duration::from_micros(of(histogram))) }
            })
        };
    let mean = ("mean", row(&|histogram| histogram.mean() as u64));
    let quantiles = QUANTILES.iter().map(|(name, at)| (*name, row(&|histogram| histogram.value_at_quantile(*at))));
    let max = ("max", row(&Histogram::max));
    std::iter::once(mean).chain(quantiles).chain([max]).collect()
}

fn bytes(count: f64) -> String {
    match count {
        _ if count < 1e3 => format!("{count:.0} B"),
        _ if count < 1e6 => format!("{:.1} kB", count / 1e3),
        _ if count < 1e9 => format!("{:.1} MB", count / 1e6),
        _ => format!("{:.2} GB", count / 1e9),
    }
}

impl Report {
    /// Microseconds of CPU for each response.
    fn for_each(&self, seconds: f64) -> f64 {
        seconds * 1e6 / self.record.answered().max(1) as f64
    }

    pub(super) fn cost(&self, seconds: f64) -> String {
        if self.record.answered() > 0 { format!("{:.2} µs", self.for_each(seconds)) } else { "-".to_owned() }
    }

    /// The value of a measure, for assertions. Times are in seconds.
    pub fn measure(&self, measure: Measure) -> f64 {
        let record = &self.record;
        match measure {
            Measure::Quantile(at) => record.intended.value_at_quantile(at) as f64 / 1e6,
            Measure::Mean => record.intended.mean() / 1e6,
            Measure::Max => record.intended.max() as f64 / 1e6,
            Measure::Rate => record.rate(),
            Measure::Errors => {
                (record.all_errors() + record.unsent) as f64 / (record.requests + record.unsent).max(1) as f64
            }
        }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let (setup, record) = (&self.setup, &self.record);
        let mut text = String::new();
        let seconds = record.elapsed.as_secs_f64().max(1e-9);
        let _ = writeln!(
            text,
            "requests   {} in {:.2} s: {} a second; received {} a second",
            grouped(record.responses),
            seconds,
            grouped(record.rate().round() as u64),
            bytes(record.received_bytes as f64 / seconds)
        );
        let _ = writeln!(text, "\n{:<10} {:>20} {:>22}", "latency", "from intended time", "from actual send");
        for (name, [intended, sent]) in latencies([&record.intended, &record.sent]) {
            let _ = writeln!(text, "{name:<10} {intended:>20} {sent:>22}");
        }
        match &setup.rate {
            None => text.push_str("closed loop: shows capacity, not latency\n"),
            Some(rate) => {
                let asked = record.requests + record.unsent;
                let _ = writeln!(text, "open loop: {rate}, {} requests were due", grouped(asked));
            }
        }
        text.push('\n');
        let statuses: Vec<String> =
            record.statuses.iter().map(|(status, count)| format!("{status}: {}", grouped(*count))).collect();
        let _ =
            writeln!(text, "status     {}", if statuses.is_empty() { "none".to_owned() } else { statuses.join(", ") });
        if record.faults.is_empty() {
            text.push_str("errors     none\n");
        }
        for (fault, (count, example)) in &record.faults {
            let _ = writeln!(text, "errors     {}: {} ({example})", fault.name(), grouped(*count));
        }
        if record.unsent > 0 {
            let _ =
                writeln!(text, "unsent     {} requests were due and had no free connection", grouped(record.unsent));
        }
        if !self.watched.workers.is_empty() {
            let cpu = self.watched.cpu();
            let used = cpu / self.watched.seconds.max(1e-9);
            let _ = writeln!(text, "generator  {used:.2} CPUs, {} a response", self.cost(cpu));
        }
        if let (Some(cpu), Some((before, after))) = (self.watched.server_cpu(), self.watched.server) {
            let used = cpu / self.watched.seconds.max(1e-9);
            let switches = after.switches.saturating_sub(before.switches);
            let _ = writeln!(
                text,
                "server     {used:.2} CPUs, {} a response, {} resident, {} context switches",
                self.cost(cpu),
                bytes(after.resident as f64),
                grouped(switches)
            );
        }
        if let Some(network) = self.watched.network
            && network.retransmitted + network.listen_drops > 0
        {
            let (again, dropped) = (grouped(network.retransmitted), grouped(network.listen_drops));
            let _ =
                writeln!(text, "network    {again} segments sent again, {dropped} connections dropped (whole machine)");
        }
        let _ = writeln!(text, "{}", self.verdict.line());
        text
    }

    /// The report for programs. docs/bench.md and docs/bench.schema.json describe it.
    pub fn json(&self) -> String {
        let record = &self.record;
        let error = |(fault, (count, example)): (&Fault, &(u64, String))| {
            (fault.name(), Errors { count: *count, example: example.clone() })
        };
        let json = Json {
            version: VERSION,
            setup: &self.setup,
            seconds: record.elapsed.as_secs_f64(),
            requests: record.requests,
            responses: record.responses,
            late_responses: record.late,
            unsent_requests: record.unsent,
            responses_per_second: record.rate(),
            received_bytes: record.received_bytes,
            sent_bytes: record.sent_bytes,
            statuses: &record.statuses,
            errors: record.faults.iter().map(error).collect(),
            latency_from_intended_us: Latency::of(&record.intended),
            latency_from_send_us: Latency::of(&record.sent),
            send_lag_us: Latency::of(&record.lag),
            connect_us: Latency::of(&record.connects),
            tls_handshake_us: Latency::of(&record.handshakes),
            generator_cpu_us_per_response: self.for_each(self.watched.cpu()),
            server_cpu_us_per_response: self.watched.server_cpu().map(|cpu| self.for_each(cpu)),
            watched: &self.watched,
            verdict: &self.verdict,
        };
        let mut text = serde_json::to_string_pretty(&json).expect("only strings are keys");
        text.push('\n');
        text
    }

    /// A line of names and a line of values, for spreadsheets. Times are in µs.
    pub fn csv(&self) -> String {
        let record = &self.record;
        let mut names = vec!["seconds".to_owned(), "responses".into(), "responses_per_second".into(), "errors".into()];
        let mut values = vec![
            format!("{:.3}", record.elapsed.as_secs_f64()),
            record.responses.to_string(),
            format!("{:.1}", record.rate()),
            record.errors().to_string(),
        ];
        for (from, histogram) in [("intended", &record.intended), ("send", &record.sent)] {
            for (name, at) in QUANTILES {
                names.push(format!("{name}_from_{from}_us"));
                values.push(histogram.value_at_quantile(at).to_string());
            }
        }
        format!("{}\n{}\n", names.join(","), values.join(","))
    }

    /// The percentiles of the latencies from the intended times, in the text format of HDR histograms; values in ms.
    pub fn hgrm(&self) -> String {
        let histogram = &self.record.intended;
        let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
        let mut total = 0;
        for value in histogram.iter_quantiles(5) {
            let at = value.quantile_iterated_to();
            total += value.count_since_last_iteration();
            let milliseconds = value.value_iterated_to() as f64 / 1e3;
            let inverse = if at < 1.0 { format!("{:14.2}", 1.0 / (1.0 - at)) } else { format!("{:>14}", "inf") };
            let _ = writeln!(text, "{milliseconds:12.3} {at:2.12} {total:10} {inverse}");
        }
        let (mean, deviation) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
        let (max, count) = (histogram.max() as f64 / 1e3, histogram.len());
        let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
        let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {count:12}]");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")];
        cases.iter().for_each(|(number, text)| assert_eq!(grouped(*number), *text));
    }
}
