//! The load of a run: its options, and how it is generated, watched and told of.

use super::exchange::Shared;
use super::gate::Gate;
use super::live::{DRAW, Snapshots, View};
use super::plan::{self, Arrival, Rate, Schedule, Stage};
use super::record::Record;
use super::report::{self, Report, Setup};
use super::target::{Http, Parts, Target};
use super::watch::{self, Network, Process, Watched};
use super::worker::{Job, Live, Worker};
use super::{Problem, options, verdict};
use bytes::Bytes;
use highwire_engine::tls::{ClientTls, ServerName};
use highwire_io::signal::{self, Signal};
use highwire_io::{Instant, Readiness, Uring};
use highwire_proto::{Head, Limits, Version};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The rate to another machine above which the run must be confirmed by `--yes`, if it is not a terminal's.
const MOST_UNASKED_RATE: f64 = 1000.0;

/// How often the main thread looks at the workers.
const LOOK: Duration = Duration::from_millis(10);

/// How often a line tells of the progress.
const PROGRESS: Duration = Duration::from_secs(1);

/// The length of a run without other settings.
const LENGTH: Duration = Duration::from_secs(10);

/// The event loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Loop {
    /// io_uring if the system has it, otherwise readiness.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// epoll, or what the system has.
    Readiness,
}

/// The load of a run.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Load {
    /// The number of connections.
    #[arg(short, long, value_name = "N", default_value_t = 64, value_parser = options::at_least_one)]
    pub(super) connections: usize,

    /// The length of the run, such as 10s or 1m. [default: 10s, unless --requests or --stages]
    #[arg(short, long, value_name = "TIME", value_parser = plan::duration)]
    pub(super) duration: Option<Duration>,

    /// End after so many requests.
    #[arg(short = 'n', long, value_name = "N", value_parser = options::at_least_one)]
    pub(super) requests: Option<usize>,

    /// The number of threads. [default: the number of CPUs, at most 8]
    #[arg(short, long, value_name = "N", value_parser = options::at_least_one)]
    threads: Option<usize>,

    /// Send requests at this rate, whether the server keeps up or not: 500, 5k, or from one rate to another in a time, 1k..50k/60s.
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<Rate>,

    /// Send requests at the rates of a file, one stage in a line: `5k 30s`, `1k..50k 1m`.
    #[arg(long, value_name = "FILE", conflicts_with = "rate")]
    pub(super) stages: Option<PathBuf>,

    /// How the requests of --rate and --stages are distributed in time.
    #[arg(long, value_enum, default_value_t)]
    arrival: Arrival,

    /// Send up to N requests on a connection before their responses (HTTP/1).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = options::at_least_one)]
    pipeline: usize,

    /// The version of HTTP.
    #[arg(long, value_enum, default_value = "1.1")]
    http: Http,

    /// The number of concurrent streams of a connection (HTTP/2).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = options::at_least_one)]
    streams: usize,

    /// Open a connection for each request.
    #[arg(long)]
    close: bool,

    /// The method. [default: GET, or POST with a body]
    #[arg(short = 'X', long)]
    method: Option<String>,

    /// Add a header field. Repeatable.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = options::field)]
    headers: Vec<(String, String)>,

    /// The body of each request.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,

    /// A file with the body of each request.
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    body_file: Option<PathBuf>,

    /// The statuses that are expected, as one or a range. Others count as errors and have no latency.
    #[arg(long, value_name = "STATUS", default_value = "200..399", value_parser = options::statuses)]
    expect_status: (u16, u16),

    /// The most time for a connection, and for a response.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = plan::duration)]
    timeout: Duration,

    /// Connect to this host and port, and not to the URL's.
    #[arg(long, value_name = "HOST:PORT")]
    connect_to: Option<String>,

    /// Connect to a unix socket.
    #[arg(long, value_name = "PATH", conflicts_with = "connect_to")]
    unix: Option<String>,

    /// The server's name for TLS, in place of the URL's.
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,

    /// Accept any certificate.
    #[arg(long)]
    insecure: bool,

    /// A PEM file with authorities to trust beside the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// A PEM file with the client's certificate.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// A PEM file with the key of --cert.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// The event loop.
    #[arg(long, value_enum, default_value_t)]
    engine: Loop,

    /// Lines of progress in place of the live view.
    #[arg(long)]
    plain: bool,

    /// No progress.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Load another machine with a closed loop, or with more than 1,000 requests a second, also where standard error is no terminal.
    #[arg(long)]
    yes: bool,
}

/// What is known of a run besides its load.
struct Observed {
    length: Option<Duration>,
    is_local: bool,
    pid: Option<u32>,
}

impl Load {
    /// Returns true if the connections do not go to the URL's host.
    pub(super) fn has_fixed_address(&self) -> bool {
        self.connect_to.is_some() || self.unix.is_some()
    }

    fn target(&self, url: &str) -> Result<Target, Problem> {
        let body = match (&self.body, &self.body_file) {
            (Some(text), _) => Bytes::from(text.clone()),
            (None, Some(path)) => std::fs::read(path)
                .map(Bytes::from)
                .map_err(|error| Problem::Options(format!("--body-file {}: {error}", path.display())))?,
            (None, None) => Bytes::new(),
        };
        let parts = Parts {
            method: self.method.clone(),
            fields: self.headers.clone(),
            body,
            connect_to: self.connect_to.clone(),
            unix: self.unix.clone(),
            sni: self.sni.clone(),
        };
        Target::new(url, parts).map_err(Problem::Options)
    }

    /// The stages of an open loop and their description; `None` for a closed one.
    fn plan(&self) -> Result<Option<(Vec<Stage>, String)>, Problem> {
        let arrival = match self.arrival {
            Arrival::Constant => "",
            Arrival::Poisson => ", Poisson",
        };
        if let Some(path) = &self.stages {
            let name = format!("--stages {}", path.display());
            let text = std::fs::read_to_string(path).map_err(|error| Problem::Options(format!("{name}: {error}")))?;
            let stages = plan::stages(&text).map_err(|error| Problem::Options(format!("{name}: {error}")))?;
            let text = format!("{} stages{arrival}", stages.len());
            return Ok(Some((stages, text)));
        }
        let Some(rate) = self.rate else { return Ok(None) };
        // A number of requests needs its time, with some for the last ones.
        let mean = f64::midpoint(rate.from, rate.to);
        let of_requests = self.requests.map(|requests| (requests as f64 / mean + 1.0).min(7.0 * 86_400.0));
        let length = rate.length.or(self.duration).map(|length| length.as_secs_f64());
        let length = length.or(of_requests).unwrap_or(LENGTH.as_secs_f64());
        let shown =
            if rate.from == rate.to { format!("{}", rate.from) } else { format!("{} to {}", rate.from, rate.to) };
        let stages = vec![Stage { from: rate.from, to: rate.to, seconds: length }];
        Ok(Some((stages, format!("{shown} requests a second{arrival}"))))
    }

    fn length(&self, stages: Option<&[Stage]>) -> Option<Duration> {
        match stages {
            Some(stages) => {
                let all = Duration::from_secs_f64(stages.iter().map(|stage| stage.seconds).sum());
                Some(self.duration.map_or(all, |length| length.min(all)))
            }
            None if self.requests.is_some() => self.duration,
            None => Some(self.duration.unwrap_or(LENGTH)),
        }
    }

    /// Other people's machines are not to be loaded by a slip.
    fn ask(&self, target: &Target, plan: Option<&(Vec<Stage>, String)>) -> Result<(), Problem> {
        let highest = plan.map(|(stages, _)| stages.iter().map(|stage| stage.from.max(stage.to)).fold(0.0, f64::max));
        if target.is_local() || highest.is_some_and(|rate| rate <= MOST_UNASKED_RATE) {
            return Ok(());
        }
        let rate = plan.map_or("as many requests as it answers".to_owned(), |(_, text)| text.clone());
        eprintln!("highwire bench: sends {rate} to {}, which is not this machine", target.url);
        if self.yes || std::io::stderr().is_terminal() {
            return Ok(());
        }
        Err(Problem::Options("use --yes if that is what you want".into()))
    }

    /// Runs the load as one of several runs. After Ctrl-C, this is an error, because a run that is cut short says nothing.
    pub(super) fn measure_whole(&self, url: &str, pid: Option<u32>) -> Result<Report, Problem> {
        let report = self.measure(url, pid)?;
        if signal::count(Signal::Stop) > 0 { Err(Problem::Failed("interrupted".into())) } else { Ok(report) }
    }

    /// Does what [`measure_whole`](Self::measure_whole) does. A run without an expected response is an error, too.
    pub(super) fn measure_answered(&self, url: &str, pid: Option<u32>) -> Result<Report, Problem> {
        let report = self.measure_whole(url, pid)?;
        let is_answered = report.record.responses > 0;
        if is_answered { Ok(report) } else { Err(Problem::Failed(format!("{url}: no expected response"))) }
    }

    /// Runs the load and returns what was measured.
    ///
    /// # Errors
    /// Returns a text if an option is wrong, or if no connection can be opened.
    pub(super) fn measure(&self, url: &str, pid: Option<u32>) -> Result<Report, Problem> {
        let target = self.target(url)?;
        let plan = self.plan()?;
        self.ask(&target, plan.as_ref())?;
        if pid.is_some_and(|pid| Process::read(pid).is_none()) {
            return Err(Problem::Options("--pid: there is no such process, or it cannot be seen".into()));
        }
        let version = if self.http == Http::One0 { Version::Http10 } else { Version::Http11 };
        let (head, template) = target.http1(version, !self.close).map_err(Problem::Options)?;
        let request = Bytes::from([&head[..], &target.body[..]].concat());
        let tls = if target.is_secure { Some(self.tls(&target)?) } else { None };
        let cpus = thread::available_parallelism().map_or(1, usize::from).min(8);
        let mut threads = self.threads.unwrap_or(cpus).min(self.connections).min(self.requests.unwrap_or(usize::MAX));
        // With few connections, threads of different shares would end at different times.
        while !self.connections.is_multiple_of(threads) && self.connections < 16 * threads {
            threads -= 1;
        }
        highwire::server::raise_descriptor_limit();
        let length = self.length(plan.as_ref().map(|(stages, _)| &stages[..]));
        let depth = match self.http {
            _ if self.close => 1,
            Http::Two => self.streams,
            Http::One0 | Http::One1 => self.pipeline,
        };
        let gate = Gate::new(threads);
        let shows = !self.quiet && !self.plain && std::io::stdout().is_terminal();
        let counter = || AtomicU64::new(0);
        let live = Arc::new(Live {
            responses: counter(),
            errors: counter(),
            connected: AtomicUsize::new(0),
            begun: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            snapshots: shows.then(|| Snapshots::new(threads)),
            ended: AtomicUsize::new(0),
            gate,
        });
        let seed = fastrand::u64(..);
        let share = |all: usize, worker: usize| all / threads + usize::from(worker < all % threads);
        let workers = (0..threads).map(|worker| {
            let job = Job {
                number: worker,
                http: self.http,
                connections: share(self.connections, worker),
                depth,
                keeps_alive: !self.close,
                length,
                requests: self.requests.map_or(u64::MAX, |all| share(all, worker) as u64),
                schedule: plan
                    .as_ref()
                    .map(|(stages, _)| Schedule::new(stages.clone(), self.arrival, worker, threads, seed)),
                timeout: self.timeout,
                tls: tls.clone(),
            };
            let shared = Shared {
                target: target.clone(),
                request: request.clone(),
                template: template.clone(),
                lower: target.http2_fields(),
                expected: self.expect_status.0..=self.expect_status.1,
                limits: Limits::default(),
                head: Head::default(),
                fields: Vec::new(),
                now: Instant::default(),
                is_over: false,
                end: None,
                answers: 0,
                record: Record::default(),
                equal: Default::default(),
                known: None,
            };
            Worker::new(job, shared, live.clone())
        });
        let workers: Vec<Worker> = workers.collect();
        let setup = Setup {
            url: target.url.clone(),
            method: target.method.clone(),
            protocol: self.protocol(target.is_secure),
            connections: self.connections,
            depth,
            keep_alive: !self.close,
            threads,
            engine: String::new(),
            rate: plan.as_ref().map(|(_, text)| text.clone()),
        };
        self.announce(&setup, length);
        self.observe(workers, &live, setup, &Observed { length, is_local: target.is_local(), pid })
    }

    fn protocol(&self, is_secure: bool) -> String {
        let version = match self.http {
            Http::One0 => "HTTP/1.0",
            Http::One1 => "HTTP/1.1",
            Http::Two => "HTTP/2",
        };
        if is_secure { format!("{version} over TLS") } else { version.to_owned() }
    }

    fn announce(&self, setup: &Setup, length: Option<Duration>) {
        if self.quiet {
            return;
        }
        let depth = match (self.close, setup.depth) {
            (true, _) => ", one for each request".to_owned(),
            (false, 1) => String::new(),
            (false, depth) => format!(" with {depth} requests at a time"),
        };
        let length = length.map_or(String::new(), |length| format!(", {}", watch::time(length)));
        let requests =
            self.requests.map_or(String::new(), |count| format!(", {} requests", report::grouped(count as u64)));
        println!("{} {}", setup.method, setup.url);
        println!(
            "{}, {} connections{depth}, {} threads{length}{requests}, {}\n",
            setup.protocol,
            setup.connections,
            setup.threads,
            setup.rate.as_deref().unwrap_or("closed loop")
        );
    }

    fn tls(&self, target: &Target) -> Result<(Arc<highwire_engine::tls::ClientConfig>, ServerName<'static>), Problem> {
        let mut settings = ClientTls::new();
        if self.insecure {
            settings = settings.accept_invalid_certificates();
        }
        if let Some(path) = &self.ca {
            settings = settings.root_file(path);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            settings = settings.identity_files(cert, key);
        }
        let mut config = settings.build().map_err(|error| Problem::Options(error.to_string()))?;
        config.alpn_protocols = match self.http {
            Http::One0 => vec![b"http/1.0".to_vec()],
            Http::One1 => vec![b"http/1.1".to_vec()],
            Http::Two => vec![b"h2".to_vec()],
        };
        let name = ServerName::try_from(target.name.clone())
            .map_err(|_| Problem::Options(format!("{:?} is no name for TLS", target.name)))?;
        Ok((Arc::new(config), name))
    }

    /// Runs the workers, tells of the progress, and looks at the machine before and after.
    fn observe(
        &self,
        workers: Vec<Worker>,
        live: &Live,
        mut setup: Setup,
        server: &Observed,
    ) -> Result<Report, Problem> {
        let network = Network::read();
        let engine = self.engine;
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(number, worker)| {
                let thread = thread::Builder::new().name(format!("bench {number}"));
                thread.spawn(move || run_worker(worker, engine))
            })
            .collect::<Result<_, _>>()
            .map_err(|error| Problem::Failed(format!("a thread cannot be started: {error}")))?;
        let (mut record, mut watched) = (Record::default(), Watched::default());
        (watched.server, watched.seconds) = self.tell_progress(live, &threads, server, &setup);
        for thread in threads {
            let ran = thread.join().unwrap_or_else(|_| Err("a worker has panicked; this is a bug".into()));
            let (measured, engine) = ran.map_err(Problem::Failed)?;
            record.merge(&measured);
            setup.engine = engine.to_owned();
        }
        watched.workers = std::mem::take(&mut record.cpus);
        watched.network = network.zip(Network::read()).map(|(before, after)| after.since(before));
        let has_opened =
            if self.close { !record.connects.is_empty() } else { live.connected.load(Ordering::Relaxed) > 0 };
        if !has_opened {
            let example = record.faults.values().next().map_or("no connection was opened", |(_, example)| example);
            return Err(Problem::Failed(format!("{}: {example}", setup.url)));
        }
        let planned = setup.rate.as_ref().map(|_| record.requests + record.unsent);
        let verdict = verdict::judge(&record, &watched, planned, server.is_local);
        Ok(Report { setup, record, watched, verdict })
    }

    /// Tells of the progress until the workers have ended. Returns what the server's process has used between the start and the end
    /// of the requests, and the seconds between.
    fn tell_progress<T>(
        &self,
        live: &Live,
        threads: &[thread::JoinHandle<T>],
        server: &Observed,
        setup: &Setup,
    ) -> (Option<(Process, Process)>, f64) {
        let mut view = live.snapshots.as_ref().and_then(|_| View::open(setup, server.length, server.pid));
        let look = || server.pid.and_then(Process::read);
        let (mut begun, mut told, mut responses) = (std::time::Instant::now(), Duration::ZERO, 0);
        let (mut before, mut after) = (look(), None);
        let mut seconds = 0.0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            match &view {
                None => thread::park_timeout(LOOK),
                Some(view) if view.asks_for_end(LOOK) => live.stop.store(true, Ordering::Relaxed),
                Some(_) => {}
            }
            if !live.begun.load(Ordering::Relaxed) {
                (begun, before) = (std::time::Instant::now(), look());
                continue;
            }
            let elapsed = begun.elapsed();
            if live.ended.load(Ordering::Relaxed) == threads.len() {
                if seconds == 0.0 {
                    (after, seconds) = (look(), elapsed.as_secs_f64());
                }
                continue;
            }
            if let (Some(view), Some(snapshots)) = (&mut view, &live.snapshots) {
                if elapsed >= told + DRAW {
                    told = elapsed;
                    view.draw(snapshots, elapsed);
                }
                continue;
            }
            if self.quiet || elapsed < told + PROGRESS {
                continue;
            }
            let now = live.responses.load(Ordering::Relaxed);
            let rate = (now - responses) as f64 / (elapsed - told).as_secs_f64();
            let errors = live.errors.load(Ordering::Relaxed);
            (told, responses) = (elapsed, now);
            let of = server.length.map_or(String::new(), |length| format!(" of {:.0}", length.as_secs_f64()));
            let rate = report::grouped(rate as u64);
            eprintln!("{:5.0}{of} s  {rate:>12} a second  {errors} errors", elapsed.as_secs_f64());
        }
        if seconds == 0.0 {
            (after, seconds) = (look(), begun.elapsed().as_secs_f64());
        }
        (before.zip(after), seconds)
    }
}

type Ran = Result<(Record, &'static str), String>;

fn run_worker(worker: Worker, engine: Loop) -> Ran {
    let live = worker.live();
    let arrival = live.gate.place();
    let uring = match engine {
        Loop::Readiness => None,
        Loop::Uring => Some(Uring::new().map_err(|error| error.to_string())?),
        Loop::Auto => Uring::new().ok(),
    };
    let fail = |error: std::io::Error| format!("the event loop failed: {error}");
    if let Some(driver) = uring {
        return Ok((worker.run(driver, arrival).map_err(fail)?, "uring"));
    }
    let driver = Readiness::new().map_err(fail)?;
    Ok((worker.run(driver, arrival).map_err(fail)?, "readiness"))
}
