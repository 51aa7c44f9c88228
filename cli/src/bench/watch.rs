//! What a run costs and what stands in its way, as the system counts it: CPU of threads and processes, and the network.
//!
//! Linux only; elsewhere, and where a file is missing, the values are `None`.

use std::fs;
use std::time::Duration;

/// The ticks a second of the times in `/proc/PID/stat`, which Linux fixes for programs.
const TICKS: f64 = 100.0;

/// The CPU time of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Cpu {
    /// Seconds on a CPU.
    pub used: f64,
    /// Seconds in which the thread could run and had no CPU.
    pub waited: f64,
    /// The seconds of the observation.
    pub seconds: f64,
}

impl Cpu {
    /// Returns the times of the calling thread.
    pub fn of_this_thread() -> Option<Cpu> {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Cpu::parse(&text)
    }

    fn parse(text: &str) -> Option<Cpu> {
        let mut numbers = text.split_whitespace().map_while(|word| word.parse::<f64>().ok());
        Some(Cpu { used: numbers.next()? / 1e9, waited: numbers.next()? / 1e9, seconds: 0.0 })
    }

    /// The share of the time in which the thread used a CPU or waited for one.
    pub fn busy(self) -> f64 {
        (self.used + self.waited) / self.seconds.max(1e-9)
    }

    /// Returns the times since an earlier moment, which was so long ago.
    pub fn since(self, earlier: Cpu, length: Duration) -> Cpu {
        let seconds = length.as_secs_f64();
        Cpu { used: self.used - earlier.used, waited: self.waited - earlier.waited, seconds }
    }
}

/// What another process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Process {
    /// Seconds of CPU, of all threads.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub resident: u64,
    /// Context switches of the main thread and of the others: voluntary and forced.
    pub switches: u64,
    /// Threads.
    pub threads: u64,
}

impl Process {
    /// Reads what the process has used; `None` if there is no such process, or it cannot be seen.
    pub fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name of the program may contain spaces and brackets.
        let rest: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |index: usize| rest.get(index).and_then(|word| word.parse::<f64>().ok());
        let cpu = (number(11)? + number(12)?) / TICKS;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let resident = field(&status, "VmRSS:").unwrap_or_default() * 1024;
        let (mut switches, mut threads) = (0, 0);
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            switches += field(&status, "voluntary_ctxt_switches:").unwrap_or_default();
            switches += field(&status, "nonvoluntary_ctxt_switches:").unwrap_or_default();
            threads += 1;
        }
        Some(Process { cpu, resident, switches, threads })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Counters of this machine's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Network {
    /// Segments that were sent.
    pub sent: u64,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Connections that a listener of this machine had no room for.
    pub listen_drops: u64,
}

impl Network {
    /// Reads the counters of this network namespace.
    pub fn read() -> Option<Network> {
        let snmp = fs::read_to_string("/proc/net/snmp").ok()?;
        let netstat = fs::read_to_string("/proc/net/netstat").ok()?;
        Some(Network {
            sent: counter(&snmp, "Tcp:", "OutSegs")?,
            retransmitted: counter(&snmp, "Tcp:", "RetransSegs")?,
            listen_drops: counter(&netstat, "TcpExt:", "ListenDrops")?,
        })
    }

    /// Returns the counts since an earlier moment.
    pub fn since(self, earlier: Network) -> Network {
        Network {
            sent: self.sent.saturating_sub(earlier.sent),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
            listen_drops: self.listen_drops.saturating_sub(earlier.listen_drops),
        }
    }
}

/// Returns a counter of a table with a line of names and a line of values.
fn counter(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(table));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|found| found == name)?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// What was observed during a run.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Watched {
    /// The CPU time of each worker.
    pub workers: Vec<Cpu>,
    /// The server's process at the start and at the end, if it was named.
    pub server: Option<(Process, Process)>,
    /// What this machine's TCP did, with all other programs.
    pub network: Option<Network>,
    /// The seconds for which the server was observed: from the first request to the end.
    pub seconds: f64,
}

impl Watched {
    /// The share of the time in which the busiest worker used a CPU or waited for one.
    pub fn busiest(&self) -> Option<f64> {
        self.workers.iter().map(|cpu| cpu.busy()).max_by(f64::total_cmp)
    }

    /// The seconds of CPU of all workers.
    pub fn cpu(&self) -> f64 {
        self.workers.iter().map(|cpu| cpu.used).sum()
    }

    /// The seconds of CPU that the server used.
    pub fn server_cpu(&self) -> Option<f64> {
        self.server.map(|(before, after)| after.cpu - before.cpu)
    }
}

/// Returns a length of time for people.
pub fn time(length: Duration) -> String {
    let microseconds = length.as_secs_f64() * 1e6;
    match microseconds {
        _ if microseconds < 1e3 => format!("{microseconds:.0} µs"),
        _ if microseconds < 1e4 => format!("{:.2} ms", microseconds / 1e3),
        _ if microseconds < 1e6 => format!("{:.1} ms", microseconds / 1e3),
        _ => format!("{:.2} s", microseconds / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_are_read() {
        let text = "Ip: A B\nIp: 1 2\nTcp: RtoMin OutSegs RetransSegs\nTcp: 200 31 4\n";
        assert_eq!(counter(text, "Tcp:", "RetransSegs"), Some(4));
        assert_eq!(counter(text, "Tcp:", "Nothing"), None);
        assert_eq!(field("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(Cpu::parse("1500000000 500000000 9\n"), Some(Cpu { used: 1.5, waited: 0.5, seconds: 0.0 }));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_can_be_seen() {
        let process = Process::read(std::process::id()).expect("this process");
        assert!(process.resident > 0 && process.threads > 0);
        assert!(Cpu::of_this_thread().is_some() && Network::read().is_some());
        assert_eq!(Process::read(u32::MAX), None);
    }
}
