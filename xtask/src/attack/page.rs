//! Renders all measurements as Markdown. docs/attacks.md is a summary of such a page.

use std::fmt::Write as _;

use super::judge::{
    self, AMPLIFICATION, DESCRIPTORS_LEFT, FEW, IDLE_CPU, MIB_A_CONNECTION, MIB_LEFT, MIB_TOGETHER, Measured, Miss, Of,
    P99_MS, P99_MS_OF_MANY, SECONDS_BACK, TIMES_SLOWER,
};
use super::spec::Attack;
use super::table::{SECTIONS, Section};

/// An attack and its measurements.
pub(super) struct Row {
    pub(super) attack: &'static Attack,
    /// The measurements for each number of connections, in order.
    pub(super) measured: Vec<Measured>,
    /// The reason why further measurements are missing.
    pub(super) failure: Option<String>,
    /// The reason why the attack was not mounted, which is no failure.
    pub(super) not_run: Option<String>,
}

impl Row {
    /// Returns the missed bounds, each with the number of connections.
    pub(super) fn misses(&self) -> impl Iterator<Item = (u32, Miss)> {
        self.measured.iter().flat_map(move |measured| {
            let misses = judge::judge(self.attack, measured).into_iter();
            misses.map(move |miss| (measured.connections, miss))
        })
    }
}

const OPENING: &str = "\
# Attacks

`cargo xtask attack` wrote this page, of which docs/attacks.md is the summary. It mounts each attack on loopback against the release build of `highwire demo`
with default settings, or of `highwire serve` as a proxy in front of it, first from 1 connection, then from 20, then from 100, and measures the server and a bystander.
SECURITY.md has Highwire's promises, docs/limits.md the limits that enforce them.

The bystander is a client with four HTTP/1.1 connections, which it uses in turn. It requests `/hello` every 2 ms, or as soon
as the previous answer has arrived if that is later. The attackers run in their own process with the lowest priority (`nice -n 19`). If root runs the command,
the server and the bystander have a high priority. Real attackers use other machines, so the results should depend little on
how the kernel shares the cores between attackers and server. An attack whose latency or CPU time is beyond its bound is
mounted three times, and the run with the median p99 is shown. On loopback the kernel does part of the receiver's work in the
sender's time, so the CPU time of each side contains work for the other side. On a machine with two cores, latencies also
contain the scheduling of the attackers, and a short run has few samples. A p99 of up to 15 ms that appears in one run and not
in the next is therefore probably noise. To repeat one attack, run `cargo xtask attack --only NAME`.
";

const COLUMNS: &str = "\
The tables show three figures for each attack, each from 1, 20 and 100 connections; a figure beyond its bound is **bold**:

- **memory**: the largest growth of the server's own memory (`RssAnon` and `RssShmem`) since its warm-up, in MiB.
- **CPU ratio**: the server's CPU time divided by the attackers'. A dash means that the server used less than 0.05 s.
- **p99**: the 99th percentile of the bystander's latency, in milliseconds.

Some attacks make a handler work, wait or hold memory, which SECURITY.md leaves to the application. Their rows contain
`Not judged`; of these attacks, only survival and the bystander's errors are judged.

The details below each table show what the server did in the run with the most connections, and for each number of
connections the server's CPU time in percent of one core, the bystander's median during the attack and its p99 immediately
before it. A client whose connection the server closes opens the next one after 1 ms, so a flood that the server ends shows
many connections.
";

/// Returns the whole page. `machine` describes the machine and the settings.
pub(super) fn render(machine: &str, rows: &[Row]) -> String {
    let mut page = format!("{OPENING}\n{}\n{machine}\n\n## Missed bounds\n\n", bounds());
    page.push_str(&missed(rows));
    let _ = write!(page, "\n## All attacks\n\n{COLUMNS}");
    for Section { title, prefix, about, .. } in &SECTIONS {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.attack.name.starts_with(prefix)).collect();
        let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
        if !rows.is_empty() {
            let _ =
                write!(page, "\n### {title}\n\n{about}{}\n#### {title}: details\n\n{}", table(&rows), details(&rows));
        }
    }
    page
}

/// Returns the table of bounds.
fn bounds() -> String {
    format!(
        "\
Bounds:

| what | bound |
|---|---|
| memory per connection | {MIB_A_CONNECTION} MiB, plus one body or message if the attack sends those that a handler takes whole |
| memory of all connections | {MIB_TOGETHER} MiB, plus one such body or message each |
| memory after the attack | within {MIB_LEFT} MiB of the start after {SECONDS_BACK} s, or after the deadline that a row names |
| descriptors after the attack | at most {DESCRIPTORS_LEFT} more than at the start |
| the server's CPU when all attackers have left | {:.0} % of a core |
| the server | still answers new connections |
| the bystander's errors | none |
| the bystander's p99, up to {FEW} connections | {TIMES_SLOWER} times its own, or {P99_MS} ms if that is more |
| the bystander's p99, more connections | {P99_MS_OF_MANY} ms |
| the server's CPU time | {AMPLIFICATION} times the attackers' |
",
        IDLE_CPU * 100.0
    )
}

/// Returns the table of the figures with bounds.
fn table(rows: &[&Row]) -> String {
    let mut text =
        String::from("| attack | what is sent | memory, MiB | CPU ratio | p99, ms |\n|---|---|---|---|---|\n");
    for row in rows {
        let attack = row.attack;
        let own = attack.handlers_own.map_or_else(String::new, |own| format!(" Not judged: {own}."));
        let known = attack.known.map_or_else(String::new, |known| format!(" Its memory is missed: {known}."));
        let _ = write!(text, "| `{}` | {}{own}{known} |", attack.name, attack.what);
        let figures: [fn(&Measured) -> String; 3] = [
            |measured| format!("{:.1}", measured.grown_mib()),
            |measured| measured.amplification().map_or_else(|| "–".into(), |ratio| format!("{ratio:.1}")),
            |measured| milliseconds(measured.meanwhile.percentile(99)),
        ];
        for (figure, of) in figures.into_iter().zip([Of::Memory, Of::Ratio, Of::Latency]) {
            let shown = row.measured.iter().map(|measured| {
                let is_missed = judge::judge(attack, measured).iter().any(|miss| miss.of == of);
                if is_missed { format!("**{}**", figure(measured)) } else { figure(measured) }
            });
            let _ = write!(text, " {} |", shown.collect::<Vec<_>>().join(" · "));
        }
        text.push('\n');
    }
    text
}

/// Returns the table of the server's reactions and of the figures without bounds.
fn details(rows: &[&Row]) -> String {
    let mut text = String::from(
        "| attack | what the server did | CPU, % of a core | median, ms | p99 before, ms |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        let did = match (row.failure.as_ref().or(row.not_run.as_ref()), row.measured.last()) {
            (Some(reason), _) => format!("not measured: {}", plain(reason)),
            (None, Some(Measured { report, .. })) => format!("{}; {}", report.summary(), report.traffic()),
            (None, None) => "not measured".into(),
        };
        let each =
            |figure: &dyn Fn(&Measured) -> String| row.measured.iter().map(figure).collect::<Vec<_>>().join(" · ");
        let _ = writeln!(
            text,
            "| `{}` | {did} | {} | {} | {} |",
            row.attack.name,
            each(&|measured| format!("{:.0}", measured.cpu_percent().max(0.0))),
            each(&|measured| milliseconds(measured.meanwhile.percentile(50))),
            each(&|measured| milliseconds(measured.alone.percentile(99))),
        );
    }
    text
}

/// Returns the figures of one run as a line.
pub(super) fn cell(measured: &Measured) -> String {
    let ratio = measured.amplification().map_or_else(|| "–".into(), |ratio| format!("{ratio:.1}×"));
    let (alone, meanwhile) = (&measured.alone, &measured.meanwhile);
    let mut text = format!(
        "{:.1} MiB, {:.0} %, {ratio}, {} / {} ms, alone {}",
        measured.grown_mib(),
        measured.cpu_percent().max(0.0),
        milliseconds(meanwhile.percentile(50)),
        milliseconds(meanwhile.percentile(99)),
        milliseconds(alone.percentile(99)),
    );
    if meanwhile.errors > 0 {
        let _ = write!(text, ", {} errors", meanwhile.errors);
    }
    text
}

fn milliseconds(value: f64) -> String {
    if value.is_nan() { "–".into() } else { format!("{value:.2}") }
}

/// Returns the table of missed bounds and of attacks that could not be measured.
fn missed(rows: &[Row]) -> String {
    let mut lines = Vec::new();
    for row in rows {
        let name = row.attack.name;
        lines.extend(row.misses().map(|(count, miss)| format!("| `{name}` | {count} | {} |\n", miss.what)));
        lines.extend(
            row.failure
                .iter()
                .chain(&row.not_run)
                .map(|reason| format!("| `{name}` | | not measured: {} |\n", plain(reason))),
        );
    }
    if lines.is_empty() {
        return "None.\n".into();
    }
    format!("| attack | connections | what was measured |\n|---|---|---|\n{}", lines.concat())
}

/// Returns the first line of a text, with `/` in place of `|`, which would end a table cell.
fn plain(text: &str) -> String {
    text.lines().next().unwrap_or_default().replace('|', "/")
}

/// Returns a description of the machine and of the settings.
pub(super) fn machine(engine: &str, seconds: f64) -> String {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = text("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("an unknown CPU", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = text("/proc/sys/kernel/osrelease");
    format!(
        "{cores} × {model}, Linux {}, engine `{engine}`, {seconds} s for each attack and number of connections.",
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::harmless;
    use super::super::table;
    use super::*;

    fn row(name: &str, measured: Vec<Measured>, failure: Option<&str>) -> Row {
        let attack = table::find(name).expect(name);
        Row { attack, measured, failure: failure.map(str::to_owned), not_run: None }
    }

    #[test]
    fn a_page_has_a_row_for_each_attack_and_a_line_for_each_missed_bound() {
        let died = Measured { survived: false, ..harmless(20) };
        let rows = [
            row("http1-pipelined", vec![harmless(1), died], None),
            row("tls-silent", vec![], Some("no server\nat all")),
        ];
        let page = render("A machine.", &rows);
        for expected in [
            "\nA machine.\n",
            "\n### HTTP/1\n\n| attack | what is sent | memory, MiB | CPU ratio | p99, ms |\n|---|---|---|---|---|\n| `http1-pipelined` | ",
            " every answer is read. | 0.5 · 0.5 | 2.0 · 2.0 | – · – |\n",
            "| `http1-pipelined` | closed 20 of 20 connections; 0.0 MiB sent, 0.0 MiB received | 33 · 33 | – · – | – · – |\n",
            "| `tls-silent` | not measured: no server |",
            "\n| `http1-pipelined` | 20 | the server ended",
            "\n| `tls-silent` | | not measured: no server |\n",
        ] {
            assert!(page.contains(expected), "{expected:?} is not in {page}");
        }
        let large = Measured { grown_kib: 5 * 1024, ..harmless(1) };
        assert!(render("", &[row("tls-silent", vec![large], None)]).contains(" | **5.0** | 2.0 | – |\n"));
        assert!(render("", &[row("tls-silent", vec![harmless(1)], None)]).contains("## Missed bounds\n\nNone.\n"));
    }
}
