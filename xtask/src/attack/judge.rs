//! The measurements of an attack with some number of connections, and the bounds that it misses.

use super::bystander::Latency;
use super::spec::Attack;
use super::tally::Report;

const KIB_A_MIB: u64 = 1024;

/// How much memory one attacking connection may add, in MiB, in addition to [`Attack::body_bytes`].
pub(super) const MIB_A_CONNECTION: u64 = 4;
/// How much memory all attacking connections may add together, in MiB, in addition to their bodies.
pub(super) const MIB_TOGETHER: u64 = 64;
/// By how many MiB the server's memory may exceed its value at the start, [`SECONDS_BACK`] after an attack.
pub(super) const MIB_LEFT: u64 = 8;
/// How long the server may take to release memory and descriptors after an attack, in seconds.
pub(super) const SECONDS_BACK: f64 = 5.0;
/// How many more descriptors than at the start the server may have open, [`SECONDS_BACK`] after an attack. One may be
/// for /dev/urandom, for example.
pub(super) const DESCRIPTORS_LEFT: usize = 4;
/// If at most [`FEW`] connections attack, the bystander's p99 may be this many times its p99 before the attack, or
/// [`P99_MS`] milliseconds if that is more.
pub(super) const TIMES_SLOWER: f64 = 3.0;
pub(super) const P99_MS: f64 = 5.0;
/// The largest allowed p99 of the bystander, in milliseconds, if more than [`FEW`] connections attack.
pub(super) const P99_MS_OF_MANY: f64 = 15.0;
pub(super) const FEW: u32 = 20;
/// The largest allowed ratio of the server's CPU time to the attackers' CPU time.
pub(super) const AMPLIFICATION: f64 = 30.0;
/// The smallest CPU time of the server, in seconds, for which the ratio is meaningful.
const LEAST_CPU_SECONDS: f64 = 0.05;
/// The largest part of a core that the server may use once all attackers have left.
pub(super) const IDLE_CPU: f64 = 0.5;

/// The measurements of an attack with one number of connections.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) connections: u32,
    /// The bystander's latency before the attack.
    pub(super) alone: Latency,
    /// The bystander's latency during the attack.
    pub(super) meanwhile: Latency,
    /// The largest growth of the server's memory since its warm-up, in KiB.
    pub(super) grown_kib: u64,
    /// The number of seconds after the attack until memory and descriptors were near their values at the start, or the
    /// growth that was left in the end.
    pub(super) back: Result<f64, StillHeld>,
    /// The server's CPU time during the attack, without an estimate of the time for the bystander.
    pub(super) cpu_seconds: f64,
    /// The wall time of `cpu_seconds`. It is longer than the attack if the attackers' process takes long to end.
    pub(super) seconds: f64,
    /// The part of a core that the server used after all attackers had left.
    pub(super) idle_cpu: f64,
    pub(super) report: Report,
    pub(super) survived: bool,
}

impl Measured {
    /// Returns the server's CPU usage during the attack, in percent of one core.
    pub(super) fn cpu_percent(&self) -> f64 {
        self.cpu_seconds / self.seconds.max(0.001) * 100.0
    }

    /// Returns the server's CPU time divided by the attackers' CPU time, or `None` if the server's CPU time is too
    /// small for a meaningful ratio.
    pub(super) fn amplification(&self) -> Option<f64> {
        (self.cpu_seconds >= LEAST_CPU_SECONDS).then(|| self.cpu_seconds / self.report.cpu_seconds.max(0.001))
    }

    pub(super) fn grown_mib(&self) -> f64 {
        self.grown_kib as f64 / KIB_A_MIB as f64
    }
}

/// By how much the server's memory and number of descriptors exceed their values after its warm-up.
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
    /// A bound on survival, memory, descriptors or the bystander's errors. If it is missed, the command fails.
    Bound,
    /// A bound on memory that is known to be missed: see [`Attack::known`].
    Known,
    /// A bound on latency or CPU time, which depend on the machine. If it is missed, the command reports that and does
    /// not fail.
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
    let memory = if attack.known.is_some() { Kind::Known } else { Kind::Bound };
    let bound = memory_bound_kib(attack, measured.connections);
    if measured.grown_kib > bound {
        let allowed = bound as f64 / KIB_A_MIB as f64;
        miss(
            memory,
            Of::Memory,
            format!("memory grew by {:.1} MiB, more than the allowed {allowed:.0} MiB", measured.grown_mib()),
        );
    }
    if let (true, Err(StillHeld { kib, descriptors })) = (measured.survived, &measured.back) {
        let mib = *kib as f64 / KIB_A_MIB as f64;
        miss(
            if *descriptors > DESCRIPTORS_LEFT { Kind::Bound } else { memory },
            Of::Other,
            format!(
                "{mib:.1} MiB and {descriptors} descriptors more than at the start were in use after {} s",
                attack.seconds_back
            ),
        );
    }
    let (p99, bound) = (measured.meanwhile.percentile(99), p99_bound(measured.connections, &measured.alone));
    if p99 > bound {
        miss(
            Kind::Timing,
            Of::Latency,
            format!("the bystander's p99 was {p99:.2} ms, more than the allowed {bound:.2} ms"),
        );
    }
    if let Some(ratio) = measured.amplification().filter(|&ratio| ratio > AMPLIFICATION) {
        miss(Kind::Timing, Of::Ratio, format!("the server took {ratio:.0} times the attackers' CPU time"));
    }
    if measured.idle_cpu > IDLE_CPU {
        let percent = measured.idle_cpu * 100.0;
        miss(Kind::Timing, Of::Other, format!("the server used {percent:.0} % of a core after all attackers had left"));
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
            seconds: 3.0,
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
        check(
            "http1-pipelined",
            &grown(4 * KIB_A_MIB + 1),
            &[(Kind::Bound, "memory grew by 4.0 MiB, more than the allowed 4 MiB")],
        );
    }
}
