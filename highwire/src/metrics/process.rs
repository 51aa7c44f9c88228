//! What the system says about this process, under the names that clients of Prometheus use.

/// The figures of this process, as far as the system tells them.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) descriptors: Option<u64>,
    pub(super) most_descriptors: u64,
}

/// The number of clock ticks in a second in `/proc`; Linux has this value on all of its architectures.
const TICKS: f64 = 100.0;

impl Process {
    /// Reads `/proc/self`; finds nothing on systems without it.
    pub(super) fn now() -> Process {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).ok();
        Process {
            cpu_seconds: read("stat").and_then(|stat| cpu_seconds(&stat)),
            resident_bytes: read("status")
                .and_then(|status| kibibytes(&status, "VmRSS:"))
                .map(|resident| resident * 1024),
            descriptors: std::fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64),
            most_descriptors: highwire_io::memory::descriptors() as u64,
        }
    }
}

/// Returns the CPU time of user and system, fields 14 and 15. The program's name, field 2, may contain spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS)
}

fn kibibytes(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_behind_a_name_with_spaces() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1000 0 0 0 250 50 0 0 20 0 3 0 100 1 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(kibibytes("Name:\tx\nVmRSS:\t  2048 kB\n", "VmRSS:"), Some(2048));
    }
}
