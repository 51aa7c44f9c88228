//! What was the limit of a run: the server, the generator, the network, or the rate that was asked for.

use super::record::{Fault, Record};
use super::watch::Watched;
use std::time::Duration;

/// A worker that is busy for this share of the time, or waits for a CPU, is the limit.
const BUSY: f64 = 0.95;

/// A worker that stands still for this share of the time, because it was stopped or has no CPU, is the limit.
const STALLED: f64 = 0.05;

/// An open loop that sends this share of the requests that were due is limited by its rate.
const REACHED: f64 = 0.99;

/// Requests that the generator sends so much too late, at the 99th percentile, spoil the latencies.
const MOST_LAG: Duration = Duration::from_millis(1);

/// The share of segments that are sent again from which on the network is the limit.
const LOSSY: f64 = 0.005;

/// A server and a generator on one machine that use this share of its CPUs hold each other up.
const FULL: f64 = 0.9;

/// A server that uses less than this many CPUs was hardly asked.
const IDLE: f64 = 0.5;

/// A response that takes at most this many times the opening of a connection waits for the network, and not for the server.
const DISTANT: f64 = 1.5;

/// From this time for the opening of a connection on, the server is at a distance.
const FAR: Duration = Duration::from_millis(2);

/// The party that was the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The server.
    Server,
    /// This program, its machine or its settings. The figures say little about the server.
    Generator,
    /// The path to the server.
    Network,
    /// The rate that was asked for.
    Rate,
}

/// The limit, and how it is known.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Verdict {
    /// The party.
    pub limit: Limit,
    /// The reason, in words.
    pub reason: String,
}

/// Judges a run. `planned` is the number of requests that an open loop had to send; `is_local` is true if the server is on this
/// machine.
pub fn judge(record: &Record, watched: &Watched, planned: Option<u64>, is_local: bool) -> Verdict {
    let verdict = |limit, reason: String| Verdict { limit, reason };
    let ports = record.faults.get(&Fault::LocalPorts).map_or(0, |(count, _)| *count);
    if ports > 0 {
        return verdict(Limit::Generator, format!("this machine had no local port or descriptor left, {ports} times"));
    }
    let stalled = record.stalled.as_secs_f64() / record.elapsed.as_secs_f64().max(1e-9);
    if stalled > STALLED {
        return verdict(Limit::Generator, format!("it was stopped for {:.0} % of the time", stalled * 100.0));
    }
    let busiest = watched.busiest().unwrap_or_default();
    let percent = (busiest * 100.0).min(100.0);
    let lag = Duration::from_micros(record.lag.value_at_quantile(0.99));
    let is_lagging = !record.lag.is_empty() && lag > MOST_LAG;
    if let Some(planned) = planned {
        if is_lagging && busiest >= BUSY {
            let text = format!("it was busy {percent:.0} % of the time, and sent up to {lag:?} too late (p99)");
            return verdict(Limit::Generator, text);
        }
        let answered = record.answered();
        let is_sent = record.requests as f64 >= planned as f64 * REACHED;
        if is_sent && (answered as f64) < planned as f64 * REACHED {
            return verdict(Limit::Server, format!("it answered {answered} of {planned} requests as expected"));
        }
        if is_sent {
            if is_lagging {
                return verdict(
                    Limit::Generator,
                    format!("it sent requests up to {lag:?} too late (p99), although it was free"),
                );
            }
            return verdict(Limit::Rate, format!("{answered} of {planned} requests were answered"));
        }
    }
    if let Some(network) = watched.network
        && network.retransmitted as f64 > (network.sent as f64 * LOSSY).max(10.0)
    {
        let (again, sent) = (network.retransmitted, network.sent);
        return verdict(Limit::Network, format!("{again} of {sent} segments were sent again"));
    }
    if busiest >= BUSY {
        return verdict(Limit::Generator, format!("its busiest thread was busy {percent:.0} % of the time"));
    }
    let opening = Duration::from_micros(record.connects.value_at_quantile(0.1));
    let median = Duration::from_micros(record.sent.value_at_quantile(0.5));
    if !is_local
        && !record.connects.is_empty()
        && opening >= FAR
        && median.as_secs_f64() <= opening.as_secs_f64() * DISTANT
    {
        let text = format!("a response takes {median:?}, and the opening of a connection {opening:?} already");
        return verdict(Limit::Network, text);
    }
    let room = format!("the generator had room, because its busiest thread was busy {percent:.0} % of the time");
    let cpu = watched.server_cpu().map(|cpu| cpu / watched.seconds.max(1e-9));
    let Some(cpu) = cpu else { return verdict(Limit::Server, room) };
    let all = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
    let ours = watched.cpu() / watched.seconds.max(1e-9);
    let note = if is_local && cpu + ours > all * FULL {
        "; together they used up this machine, so give each CPUs of its own (taskset), or use another machine"
    } else if cpu < IDLE {
        ", so it waited for something else, or more connections would bring more"
    } else {
        ""
    };
    verdict(Limit::Server, format!("{room}; the server used {cpu:.2} CPUs{note}"))
}

impl Verdict {
    /// The last line of a report.
    pub fn line(&self) -> String {
        let party = match self.limit {
            Limit::Server => "the server was the limit",
            Limit::Generator => "the generator was the limit, so the figures say little about the server",
            Limit::Network => "the network was the limit",
            Limit::Rate => "the given rate was the limit",
        };
        format!("{party}: {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::note;
    use super::super::watch::{Cpu, Network};
    use super::*;

    fn run() -> (Record, Watched) {
        let mut record = Record::default();
        (record.requests, record.responses) = (1000, 1000);
        let workers = [2.0, 4.0].map(|used| Cpu { used, waited: 0.1, seconds: 10.0 }).to_vec();
        (record, Watched { workers, seconds: 10.0, ..Watched::default() })
    }

    #[test]
    fn each_party_can_be_the_limit() {
        let (record, watched) = run();
        assert_eq!(judge(&record, &watched, None, false).limit, Limit::Server);
        assert_eq!(judge(&record, &watched, Some(1000), false).limit, Limit::Rate);
        assert_eq!(judge(&record, &watched, Some(2000), false).limit, Limit::Server);
        let (mut unanswered, _) = run();
        unanswered.responses = 500;
        assert_eq!(judge(&unanswered, &watched, Some(1000), false).limit, Limit::Server);

        let busy = Watched { workers: vec![Cpu { used: 1.0, waited: 8.9, seconds: 10.0 }], ..watched.clone() };
        assert_eq!(judge(&record, &busy, None, false).limit, Limit::Generator, "held from the CPU");
        assert_eq!(judge(&record, &busy, Some(2000), false).limit, Limit::Generator);

        let network = Some(Network { sent: 10_000, retransmitted: 100, listen_drops: 0 });
        assert_eq!(judge(&record, &Watched { network, ..watched.clone() }, None, false).limit, Limit::Network);

        let (mut stopped, _) = run();
        (stopped.elapsed, stopped.stalled) = (Duration::from_secs(10), Duration::from_secs(2));
        assert_eq!(judge(&stopped, &watched, None, false).limit, Limit::Generator);

        let (mut ports, _) = run();
        ports.fault(Fault::LocalPorts, 5, String::new);
        assert_eq!(judge(&ports, &watched, None, false).limit, Limit::Generator);

        let (mut far, _) = run();
        note(&mut far.connects, Duration::from_millis(100));
        note(&mut far.sent, Duration::from_millis(101));
        assert_eq!(judge(&far, &watched, None, false).limit, Limit::Network);

        let (mut late, _) = run();
        note(&mut late.lag, Duration::from_millis(5));
        assert_eq!(judge(&late, &watched, Some(1000), false).limit, Limit::Generator);
    }
}
