//! What a run has measured: two histograms of latencies, and counts.

use super::watch::Cpu;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies are recorded from 1 µs to 1 hour with three significant digits. Longer ones count as an hour.
pub const MOST_MICROSECONDS: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// No connection.
    Connect,
    /// No connection, because this machine has no local port or descriptor left.
    LocalPorts,
    /// The TLS handshake failed, or the session did.
    Tls,
    /// No whole response within the time limit.
    Timeout,
    /// The connection was given up, because another response on it was late.
    Sibling,
    /// The server has reset the connection.
    Reset,
    /// The server has closed the connection before a response began.
    Closed,
    /// The response ended before its announced length.
    ShortBody,
    /// The server has broken the protocol, or speaks another one.
    Protocol,
    /// The server has reset the stream, or sent GOAWAY.
    Stream,
    /// A status that was not expected.
    Status,
    /// The run ended before the response did.
    Unfinished,
}

impl Fault {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Connect => "connect",
            Fault::LocalPorts => "no local port or descriptor",
            Fault::Tls => "TLS",
            Fault::Timeout => "timeout",
            Fault::Sibling => "lost with a late one",
            Fault::Reset => "reset",
            Fault::Closed => "closed without a response",
            Fault::ShortBody => "short body",
            Fault::Protocol => "protocol",
            Fault::Stream => "stream reset or GOAWAY",
            Fault::Status => "status",
            Fault::Unfinished => "unfinished at the end",
        }
    }
}

/// What one worker, or all of them, have measured.
#[derive(Clone, Debug)]
pub struct Record {
    /// Latencies from the intended times, in µs.
    pub intended: Histogram<u64>,
    /// Latencies from the actual sends, in µs.
    pub sent: Histogram<u64>,
    /// How late requests were sent although a connection was free, in µs: the generator's own lag.
    pub lag: Histogram<u64>,
    /// The times in which connections were opened, without TLS, in µs.
    pub connects: Histogram<u64>,
    /// The times of TLS handshakes, in µs.
    pub handshakes: Histogram<u64>,
    /// The requests that were sent.
    pub requests: u64,
    /// The expected responses that were complete before the end of the run.
    pub responses: u64,
    /// The expected responses that were complete soon after it.
    pub late: u64,
    /// The responses by status.
    pub statuses: BTreeMap<u16, u64>,
    usual: (u16, u64),
    /// The errors by class, and an example of each.
    pub faults: BTreeMap<Fault, (u64, String)>,
    /// The bytes that were received.
    pub received_bytes: u64,
    /// The bytes that were sent.
    pub sent_bytes: u64,
    /// Requests that were due and had no free connection until the end.
    pub unsent: u64,
    /// The time for which requests were sent.
    pub elapsed: Duration,
    /// The CPU time of each worker.
    pub cpus: Vec<Cpu>,
    /// The time in which the worker could not run although it had to.
    pub stalled: Duration,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, MOST_MICROSECONDS, DIGITS).expect("valid bounds")
}

impl Default for Record {
    /// Creates an empty record.
    fn default() -> Record {
        Record {
            intended: histogram(),
            sent: histogram(),
            lag: histogram(),
            connects: histogram(),
            handshakes: histogram(),
            requests: 0,
            responses: 0,
            late: 0,
            statuses: BTreeMap::new(),
            usual: (0, 0),
            faults: BTreeMap::new(),
            received_bytes: 0,
            sent_bytes: 0,
            unsent: 0,
            elapsed: Duration::ZERO,
            stalled: Duration::ZERO,
            cpus: Vec::new(),
        }
    }
}

impl Record {
    /// Counts a status. Runs of one status, which are usual, are counted apart.
    pub fn count_status(&mut self, status: u16) {
        if self.usual.0 != status {
            self.settle_statuses();
            self.usual.0 = status;
        }
        self.usual.1 += 1;
    }

    /// Puts the counted statuses into `statuses`.
    pub fn settle_statuses(&mut self) {
        let (status, count) = std::mem::take(&mut self.usual);
        if count > 0 {
            *self.statuses.entry(status).or_default() += count;
        }
    }

    /// Counts errors of a class.
    pub fn fault(&mut self, fault: Fault, count: u64, example: impl FnOnce() -> String) {
        if count > 0 {
            self.faults.entry(fault).or_insert_with(|| (0, example())).0 += count;
        }
    }

    /// The expected responses, with those that came after the end of the run.
    pub fn answered(&self) -> u64 {
        self.responses + self.late
    }

    /// The number of errors, with the requests that the end of the run has cut short.
    pub fn all_errors(&self) -> u64 {
        self.faults.values().map(|(count, _)| count).sum()
    }

    /// The number of errors. Not counted: requests that the end of the run has cut short.
    pub fn errors(&self) -> u64 {
        self.faults.iter().filter(|(fault, _)| **fault != Fault::Unfinished).map(|(_, (count, _))| count).sum()
    }

    /// The errors of requests that were sent, without those of connections.
    pub fn lost_requests(&self) -> u64 {
        let of_connections = [Fault::Connect, Fault::LocalPorts, Fault::Tls];
        self.faults.iter().filter(|(fault, _)| !of_connections.contains(fault)).map(|(_, (count, _))| count).sum()
    }

    /// Expected responses a second.
    pub fn rate(&self) -> f64 {
        self.responses as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Adds what another worker has measured at the same time.
    pub fn merge(&mut self, other: &Record) {
        for (ours, theirs) in [
            (&mut self.intended, &other.intended),
            (&mut self.sent, &other.sent),
            (&mut self.lag, &other.lag),
            (&mut self.connects, &other.connects),
            (&mut self.handshakes, &other.handshakes),
        ] {
            ours.add(theirs).expect("the same bounds");
        }
        self.requests += other.requests;
        self.responses += other.responses;
        self.late += other.late;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (fault, (count, example)) in &other.faults {
            self.fault(*fault, *count, || example.clone());
        }
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.unsent += other.unsent;
        self.cpus.extend_from_slice(&other.cpus);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.stalled = self.stalled.max(other.stalled);
    }
}

/// Records a latency. Hours count as one hour.
pub fn note(histogram: &mut Histogram<u64>, latency: Duration) {
    note_many(histogram, latency, 1);
}

/// Records a latency so many times.
pub fn note_many(histogram: &mut Histogram<u64>, latency: Duration, count: u64) {
    let microseconds = latency.as_secs().saturating_mul(1_000_000) + u64::from(latency.subsec_micros());
    if count > 0 {
        histogram.saturating_record_n(microseconds.clamp(1, MOST_MICROSECONDS), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The naive twin: percentiles of a sorted list. The histogram may differ by its three digits.
    #[test]
    fn percentiles_are_those_of_a_sorted_list() {
        let mut random = fastrand::Rng::with_seed(3);
        for scale in [1.0, 50.0, 3000.0, 2e6] {
            let (mut list, mut histogram) = (Vec::new(), histogram());
            for _ in 0..10_000 {
                let microseconds = (-(1.0 - random.f64()).ln() * scale) as u64 + 1;
                list.push(microseconds);
                note(&mut histogram, Duration::from_micros(microseconds));
            }
            list.sort_unstable();
            for quantile in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((quantile * list.len() as f64).ceil() as usize).clamp(1, list.len());
                let (exact, found) = (list[rank - 1] as f64, histogram.value_at_quantile(quantile) as f64);
                assert!((found - exact).abs() <= (exact * 0.001).max(1.0), "{quantile} of {scale}: {found}, {exact}");
            }
        }
    }

    #[test]
    fn very_long_latencies_count_as_an_hour() {
        let mut histogram = histogram();
        note(&mut histogram, Duration::from_secs(9000));
        assert!(histogram.max() as f64 >= MOST_MICROSECONDS as f64 * 0.999);
    }
}
