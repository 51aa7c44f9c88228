//! The measurements of an attack with some number of connections, and the bounds that it misses.

use super::bystander::Latency;
use super::spec::Attack;
use super::tally::Report;

const KIB_A_MIB: u64 = 1024;

/// Memory that one attacking connection may add, in MiB, in addition to one whole body.
pub(super) const MIB_A_CONNECTION: u64 = 4;
/// Memory that all attacking connections may add together, in MiB, in addition to those bodies.
pub(super) const MIB_TOGETHER: u64 = 64;
/// Memory that the server may still hold after the attack, in MiB, and the seconds after which that is checked.
pub(super) const MIB_LEFT: u64 = 8;
pub(super) const SECONDS_BACK: f64 = 5.0;
/// Descriptors that may stay open, for example of a log file or of /dev/urandom.
pub(super) const DESCRIPTORS_LEFT: usize = 4;
/// The bystander's p99 may be this many times its p99 before the attack, or [`P99_MS`] milliseconds if that is more.
pub(super) const TIMES_SLOWER: f64 = 3.0;
pub(super) const P99_MS: f64 = 5.0;
/// The bystander's p99 in milliseconds if more than [`FEW`] connections attack.
pub(super) const P99_MS_OF_MANY: f64 = 15.0;
pub(super) const FEW: u32 = 20;
/// The largest ratio of the server's CPU time to the attackers'.
pub(super) const AMPLIFICATION: f64 = 30.0;
/// The least CPU time of the server, in seconds, for which the ratio is not noise.
const LEAST_CPU_SECONDS: f64 = 0.05;
/// The part of a core that the server may use once all attackers have left.
pub(super) const IDLE_CPU: f64 = 0.5;

/// The measurements of an attack with one number of connections.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) connections: u32,
    /// The bystander before the attack.
    pub(super) alone: Latency,
    /// The bystander during the attack.
    pub(super) meanwhile: Latency,
    /// The largest growth of the memory since the server's start.
    pub(super) grown_kib: u64,
    /// Seconds after the attack until memory and descriptors were released, or the rest that was still held in the end.
    pub(super) back: Result<f64, StillHeld>,
    /// The server's CPU time during the attack, without the time for the bystander alone.
    pub(super) cpu_seconds: f64,
    /// The part of a core that the server used after all attackers had left.
    pub(super) idle_cpu: f64,
    pub(super) report: Report,
    pub(super) survived: bool,
}

impl Measured {
    /// Returns the server's CPU usage during the attack, in percent of one core.
    pub(super) fn cpu_percent(&self) -> f64 {
        self.cpu_seconds / self.report.seconds.max(0.001) * 100.0
    }

    /// Returns the server's CPU time divided by the attackers', or `None` if it is too small to compare.
    pub(super) fn amplification(&self) -> Option<f64> {
        (self.cpu_seconds >= LEAST_CPU_SECONDS).then(|| self.cpu_seconds / self.report.cpu_seconds.max(0.001))
    }

    pub(super) fn grown_mib(&self) -> f64 {
        self.grown_kib as f64 / KIB_A_MIB as f64
    }
}

/// Memory and descriptors that the server holds in addition to those at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StillHeld {
    pub(super) kib: u64,
    pub(super) descriptors: usize,
}

/// A missed bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Miss {
    pub(super) kind: Kind,
    pub(super) of: Of,
    pub(super) what: String,
}

/// The figure that exceeds its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Memory,
    Latency,
    Ratio,
    /// A figure without a column.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Survival, memory, descriptors or the bystander's errors: the command fails.
    Bound,
    /// Latency or CPU time, which depend on the machine: the command reports it and does not fail.
    Timing,
}

/// Returns the memory that an attack may add, in KiB.
pub(super) fn memory_bound_kib(attack: &Attack, connections: u32) -> u64 {
    let connections = u64::from(connections);
    let together = (MIB_A_CONNECTION * connections).min(MIB_TOGETHER) * KIB_A_MIB;
    together + attack.body_bytes / 1024 * connections
}

/// Returns the largest allowed p99 of the bystander, in milliseconds.
fn p99_bound(connections: u32, alone: &Latency) -> f64 {
    if connections > FEW { P99_MS_OF_MANY } else { (TIMES_SLOWER * alone.percentile(99)).max(P99_MS) }
}

/// Returns the bounds that an attack misses.
pub(super) fn judge(attack: &Attack, measured: &Measured) -> Vec<Miss> {
    let mut misses = Vec::new();
    let mut miss = |kind, of, what: String| misses.push(Miss { kind, of, what });
    if !measured.survived {
        miss(Kind::Bound, Of::Other, "the server ended, or does not answer new connections".into());
    }
    let errors = measured.meanwhile.errors;
    if errors > 0 {
        miss(Kind::Bound, Of::Other, format!("the bystander had {errors} errors"));
    }
    if attack.handlers_own.is_some() {
        return misses;
    }
    let bound = memory_bound_kib(attack, measured.connections);
    if measured.grown_kib > bound {
        let allowed = bound as f64 / KIB_A_MIB as f64;
        miss(
            Kind::Bound,
            Of::Memory,
            format!("memory grew by {:.1} MiB, and {allowed:.0} are allowed", measured.grown_mib()),
        );
    }
    if let (true, Err(StillHeld { kib, descriptors })) = (measured.survived, &measured.back) {
        let mib = *kib as f64 / KIB_A_MIB as f64;
        miss(
            Kind::Bound,
            Of::Other,
            format!("{mib:.1} MiB and {descriptors} descriptors were not back {SECONDS_BACK} s after the attack"),
        );
    }
    let (p99, bound) = (measured.meanwhile.percentile(99), p99_bound(measured.connections, &measured.alone));
    if p99 > bound {
        miss(Kind::Timing, Of::Latency, format!("the bystander's p99 was {p99:.2} ms, and {bound:.2} are allowed"));
    }
    if let Some(ratio) = measured.amplification().filter(|&ratio| ratio > AMPLIFICATION) {
        miss(Kind::Timing, Of::Ratio, format!("the server took {ratio:.0} times the attackers' CPU time"));
    }
    if measured.idle_cpu > IDLE_CPU {
        let percent = measured.idle_cpu * 100.0;
        miss(Kind::Timing, Of::Other, format!("the server used {percent:.0} % of a core when all had left"));
    }
    misses
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::table;
    use super::*;

    /// Returns the measurements of an attack that misses no bound.
    pub(in super::super) fn harmless(connections: u32) -> Measured {
        Measured {
            connections,
            alone: Latency::default(),
            meanwhile: Latency::default(),
            grown_kib: 512,
            back: Ok(0.1),
            cpu_seconds: 1.0,
            idle_cpu: 0.0,
            report: Report { opened: 20, closed: 20, cpu_seconds: 0.5, seconds: 3.0, ..Report::default() },
            survived: true,
        }
    }

    /// Compares the missed bounds by their kind and the start of their text.
    fn check(name: &str, measured: &Measured, expected: &[(Kind, &str)]) {
        let attack = table::find(name).expect(name);
        let found = judge(attack, measured);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (miss, (kind, what)) in found.iter().zip(expected) {
            assert!(miss.kind == *kind && miss.what.starts_with(what), "{miss:?}");
        }
    }

    #[test]
    fn each_bar_can_be_missed() {
        let name = "http1-pipelined";
        check(name, &harmless(20), &[]);
        check(name, &Measured { survived: false, ..harmless(1) }, &[(Kind::Bound, "the server ended")]);
        check(
            name,
            &Measured { back: Err(StillHeld { kib: 9216, descriptors: 3 }), ..harmless(1) },
            &[(Kind::Bound, "9.0 MiB and 3 descriptors")],
        );
        let meanwhile = Latency { errors: 2, ..Latency::default() };
        check(name, &Measured { meanwhile, ..harmless(1) }, &[(Kind::Bound, "the bystander had 2")]);
        check(name, &Measured { cpu_seconds: 16.0, ..harmless(1) }, &[(Kind::Timing, "the server took 32 times")]);
        check(name, &Measured { idle_cpu: 1.0, ..harmless(1) }, &[(Kind::Timing, "the server used 100 %")]);
    }

    #[test]
    fn memory_is_bounded_by_connections_and_bodies() {
        let plain = table::find("http1-pipelined").expect("a row");
        let bodies = table::find("http1-held-body").expect("a row");
        for (connections, expected) in [(1, (4, 5)), (20, (64, 84)), (100, (64, 164))] {
            let found = [plain, bodies].map(|attack| memory_bound_kib(attack, connections) / KIB_A_MIB);
            assert_eq!((found[0], found[1]), expected, "{connections}");
        }
        let grown = |grown_kib| Measured { grown_kib, ..harmless(1) };
        check("http1-pipelined", &grown(4 * KIB_A_MIB), &[]);
        check("http1-pipelined", &grown(4 * KIB_A_MIB + 1), &[(Kind::Bound, "memory grew by 4.0 MiB, and 4")]);
    }
}
