//! `highwire bench`: generates load, and says what it has measured and what the limit was.
//!
//! Each thread has an event loop with the drivers of the server ([`highwire_io`]) and connections that are parsed by its
//! protocols ([`highwire_proto`]). Every request has an intended time. Two histograms are always recorded: the latency from
//! that time, which includes the wait for a free connection, and that from the actual send.

pub mod assertion;
pub mod compare;
pub mod concurrency;
mod exchange;
mod find;
mod gate;
pub mod html;
mod links;
mod live;
mod load;
mod options;
pub mod plan;
pub mod record;
pub mod report;
pub mod statistics;
pub mod target;
pub mod verdict;
pub mod watch;
mod worker;

use assertion::Assertion;
use highwire_io::signal;
use highwire_io::wake::Notifier;
use load::Load;
use report::Report;
use std::io::Write;
use std::process::ExitCode;
use verdict::Limit;

/// The exit status if the generator was the limit.
const GENERATOR_WAS_THE_LIMIT: u8 = 3;

/// The exit status if a condition of `--assert` does not hold.
const BROKEN_ASSERTION: u8 = 4;

/// The format of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs; docs/bench.schema.json describes it.
    Json,
    /// Names and values, for spreadsheets.
    Csv,
    /// Percentiles in the text format of HDR histograms.
    Hgrm,
    /// A page with a plot, which loads nothing.
    Html,
}

/// Send requests to a server, and measure it.
///
/// Examples:
///   highwire bench http://127.0.0.1:8080/hello
///   highwire bench -c 128 -d 30s --pid $(pidof server) http://127.0.0.1:8080/
///   highwire bench --rate 5k -d 1m --assert 'p99<5ms, errors<0.1%' https://a.example/api
///   highwire bench --rate 1k..50k/60s --arrival poisson http://127.0.0.1:8080/
///   highwire bench --find 'p99<10ms, errors<0.1%' http://127.0.0.1:8080/
///   highwire bench compare --rounds 10 http://127.0.0.1:8080/ http://127.0.0.1:8081/
///   highwire bench --http 2 -c 16 --streams 32 http://127.0.0.1:8080/hello
///
/// Without --rate, the loop is closed: each connection sends its next request when it has the response. This shows the
/// capacity. With --rate or --stages it is open: requests have intended times, whether the server keeps up or not.
///
/// Exit status: 0 for a run, 1 without a server or an expected response, 2 for wrong options, 3 if the generator was the limit, 4 if a condition of
/// --assert does not hold (3 comes first).
#[derive(Clone, Debug, clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Bench {
    #[command(subcommand)]
    action: Option<Action>,

    /// Where to send requests: http or https.
    #[arg(required = true)]
    url: Option<String>,

    #[command(flatten)]
    load: Load,

    /// The process of the server, to report its CPU, memory and context switches.
    #[arg(long)]
    pid: Option<u32>,

    /// Conditions that must hold, such as 'p99<5ms, errors<0.1%, rate>10k'. Latencies count from the intended times. Repeatable.
    #[arg(long = "assert", value_name = "CONDITIONS")]
    assertions: Vec<String>,

    /// Find the highest rate at which these conditions hold, such as 'p99<10ms, errors<0.1%'. Each rate is run for --duration
    /// [default: 3s] until two runs agree.
    #[arg(long, value_name = "CONDITIONS", conflicts_with_all = ["rate", "stages", "requests", "assertions"])]
    find: Option<String>,

    /// The format of the report.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What `highwire bench` can do beside one run.
#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    Compare(Box<compare::Compare>),
    Concurrency(Box<concurrency::Concurrency>),
}

/// Why there is no report.
#[derive(Debug)]
enum Problem {
    /// The options are wrong.
    Options(String),
    /// There is no server, or the system has refused something.
    Failed(String),
}

impl Problem {
    /// Says it, and returns the exit status.
    fn exit(self) -> ExitCode {
        let (text, code) = match self {
            Problem::Options(text) => (text, 2),
            Problem::Failed(text) => (text, 1),
        };
        eprintln!("highwire bench: {text}");
        ExitCode::from(code)
    }
}

impl Bench {
    /// Runs the command. Returns its exit status.
    pub fn run(&self) -> ExitCode {
        // Ctrl-C ends the run, and what was measured is reported.
        if let Err(error) = Notifier::new().and_then(signal::install) {
            return Problem::Failed(error.to_string()).exit();
        }
        let url = match (&self.action, &self.url) {
            (Some(Action::Compare(compare)), _) => return compare.run(),
            (Some(Action::Concurrency(concurrency)), _) => return concurrency.run(),
            (None, url) => url.as_deref().unwrap_or_default(),
        };
        let wrong = |error| Problem::Options(format!("--assert: {error}"));
        let assertions: Result<Vec<_>, _> = self.assertions.iter().map(|text| Assertion::parse_all(text)).collect();
        let assertions = match assertions.map_err(wrong) {
            Ok(assertions) => assertions.concat(),
            Err(problem) => return problem.exit(),
        };
        let mut load = self.load.clone();
        // Only a report for people has lines before and beside it.
        load.quiet |= self.format != Format::Text;
        if let Some(conditions) = &self.find {
            return self.find(&load, url, conditions).unwrap_or_else(Problem::exit);
        }
        let report = match load.measure(url, self.pid) {
            Ok(report) => report,
            Err(problem) => return problem.exit(),
        };
        self.print(&report);
        if self.format != Format::Text && report.verdict.limit == Limit::Generator {
            eprintln!("highwire bench: {}", report.verdict.line());
        }
        let broken: Vec<String> = assertions.iter().filter_map(|assertion| assertion.broken_by(&report)).collect();
        broken.iter().for_each(|line| eprintln!("highwire bench: --assert: {line}"));
        if report.record.answered() == 0 {
            eprintln!("highwire bench: no response had an expected status (see --expect-status)");
            ExitCode::FAILURE
        } else if report.verdict.limit == Limit::Generator {
            ExitCode::from(GENERATOR_WAS_THE_LIMIT)
        } else if !broken.is_empty() {
            ExitCode::from(BROKEN_ASSERTION)
        } else {
            ExitCode::SUCCESS
        }
    }

    fn print(&self, report: &Report) {
        let text = match self.format {
            Format::Text => report.text(),
            Format::Json => report.json(),
            Format::Csv => report.csv(),
            Format::Hgrm => report.hgrm(),
            Format::Html => html::page(report),
        };
        // A reader that has left, such as `head`, is no error.
        let _ = std::io::stdout().write_all(text.as_bytes());
    }

    /// Finds the highest rate, and prints its report.
    fn find(&self, load: &Load, url: &str, conditions: &str) -> Result<ExitCode, Problem> {
        let wrong = |error| Problem::Options(format!("--find: {error}"));
        let found = find::find(load, url, self.pid, &Assertion::parse_all(conditions).map_err(wrong)?)?;
        let Some(best) = &found.best else {
            eprintln!("highwire bench: --find: no rate holds; the last one: {}", found.last.trim());
            return Ok(ExitCode::from(BROKEN_ASSERTION));
        };
        self.print(best);
        if self.format == Format::Text {
            let rate = best.setup.rate.as_deref().unwrap_or_default();
            println!("\nhighest rate with {conditions}: {rate}");
        }
        if found.is_held {
            eprintln!(
                "highwire bench: --find: the generator was the limit of a run, so the server may be able to do more"
            );
            return Ok(ExitCode::from(GENERATOR_WAS_THE_LIMIT));
        }
        Ok(ExitCode::SUCCESS)
    }
}
