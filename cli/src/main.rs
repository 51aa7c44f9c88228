//! The command `highwire`: its options, its log and the start of the server.
#![forbid(unsafe_code)]
#![allow(rustdoc::broken_intra_doc_links, reason = "--help shows the comments on options, including their brackets")]

mod log;

use clap::{Parser, Subcommand, ValueEnum};
use highwire::compress::Compression;
use highwire::proxy::{self, HealthCheck, Proxy};
use highwire::server::{Balance, Engine, Listen, Listener, Timeouts};
use highwire::tls::{ClientAuth, TlsConfig};
use highwire::topics::Topics;
use highwire::{App, Files, HeaderName, HeaderValue, StatusCode};
use highwire_cli::bench::Bench;
use log::Log;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// An HTTP server for people who count cores, kilobytes and milliseconds.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    #[command(flatten)]
    Serving(Serving),
    Bench(Box<Bench>),
}

#[derive(Subcommand)]
enum Serving {
    Demo(Demo),
    Serve(Serve),
}

/// Serve a demo page and sample routes, to try out and to benchmark.
///
/// Examples:
///   highwire demo
///   highwire demo --listen 0.0.0.0:80 --listen '[::]:80'
///   highwire demo --listen unix:/run/highwire.sock --workers 1 --engine readiness
///   highwire demo --tls-listen 127.0.0.1:8443 --tls-self-signed
///   highwire demo --broker redis://127.0.0.1:6379
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Demo {
    /// Share the rooms of the chat at /chat with other processes, through Redis (redis://HOST:PORT) or NATS
    /// (nats://HOST:PORT). The command must have been built with `--features redis` or `--features nats`.
    #[arg(long, value_name = "URL")]
    broker: Option<String>,

    #[command(flatten)]
    running: Running,
}

/// Serve the files of a folder, and pass requests on to other servers.
///
/// Examples:
///   highwire serve
///   highwire serve public --listen 0.0.0.0:80 --precompressed
///   highwire serve dist --single-page index.html --cache-control 'assets/*=max-age=31536000, immutable'
///   highwire serve dist --proxy /api=http://127.0.0.1:9000,http://127.0.0.1:9001 --proxy-check /health
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Serve {
    /// The folder to serve.
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// List the contents of folders that have no index file.
    #[arg(long)]
    listing: bool,

    /// Also serve files and folders whose names begin with a dot. Those in DIR/.well-known are always served.
    #[arg(long)]
    hidden: bool,

    /// The file to send when a folder is requested; an empty name turns this off.
    #[arg(long, value_name = "NAME", default_value = "index.html")]
    index: String,

    /// Send FILE.br, FILE.zst or FILE.gz instead of FILE if it exists and the client accepts that coding.
    #[arg(long)]
    precompressed: bool,

    /// Compress responses of media types such as text, JSON and SVG for clients that accept compression.
    #[arg(long)]
    compress: bool,

    /// Send this file of DIR, with status 200, for paths that match no file and whose last part has no dot.
    #[arg(long, value_name = "FILE")]
    single_page: Option<String>,

    /// Send this file of DIR as the body of 404 (not found) responses. While it is missing, they have a line of text.
    #[arg(long, value_name = "FILE")]
    not_found: Option<String>,

    /// Set Cache-Control for files whose path matches PATTERN, in which one * stands for any text. Repeatable; the
    /// first matching pattern applies.
    #[arg(long, value_name = "PATTERN=VALUE", value_parser = rule)]
    cache_control: Vec<(String, String)>,

    /// Pass requests for PATH and the paths below it on to another server, or to several in turn: PATH=URL[,URL...].
    /// Repeatable. With the path / no files are served.
    #[arg(long, value_name = "PATH=URL", value_parser = proxy_rule)]
    proxy: Vec<(String, String)>,

    /// Remove PATH of --proxy from the paths that the other servers get.
    #[arg(long, requires = "proxy")]
    proxy_strip: bool,

    /// Send the client's Host to the other servers, and not their own.
    #[arg(long, requires = "proxy")]
    proxy_host: bool,

    /// How one of several servers is chosen.
    #[arg(long, value_enum, default_value_t = ProxyBalance::RoundRobin, requires = "proxy")]
    proxy_balance: ProxyBalance,

    /// Ask each server every 5 seconds for this path, and send no requests to one that does not answer with 2xx or 3xx.
    #[arg(long, value_name = "PATH", value_parser = check_path, requires = "proxy")]
    proxy_check: Option<String>,

    /// The most seconds until the head of a response of another server; then the client gets 504.
    #[arg(long, value_name = "SECONDS", default_value_t = 50, requires = "proxy", value_parser = seconds, allow_negative_numbers = true)]
    proxy_timeout: u64,

    /// The most seconds until another server has accepted a connection.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "proxy", value_parser = seconds, allow_negative_numbers = true)]
    proxy_connect_timeout: u64,

    /// Try another server if this one has answered nothing for so many seconds and the request may be sent again.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "proxy", value_parser = seconds, allow_negative_numbers = true)]
    proxy_patience: u64,

    /// The most further attempts for one request.
    #[arg(long, value_name = "NUMBER", default_value_t = 2, requires = "proxy", value_parser = count::<usize>, allow_negative_numbers = true)]
    proxy_retries: usize,

    /// Pass on paths with empty segments (//) and backslashes. A server that reads `//` as `/` may then serve what a rule of
    /// this server protects: see docs/proxy.md.
    #[arg(long, requires = "proxy")]
    proxy_unusual_paths: bool,

    /// Set a header field of the requests for the other servers, also one that the proxy writes, such as Host or
    /// X-Forwarded-For, or remove it with an empty VALUE. VALUE is sent as it is, without variables. Repeatable; the last
    /// one of a name counts.
    #[arg(long, value_name = "NAME=VALUE", value_parser = header, requires = "proxy")]
    proxy_header: Vec<(HeaderName, HeaderValue)>,

    /// Set a header field of the responses of the other servers, or remove it with an empty VALUE. Repeatable; the last one
    /// of a name counts.
    #[arg(long, value_name = "NAME=VALUE", value_parser = header, requires = "proxy")]
    proxy_response_header: Vec<(HeaderName, HeaderValue)>,

    #[command(flatten)]
    running: Running,
}

/// How a server behind this one is chosen.
#[derive(Clone, Copy, ValueEnum)]
enum ProxyBalance {
    /// one after the other
    RoundRobin,
    /// the one with the fewest requests in progress
    LeastPending,
    /// of two at random, the one with fewer requests in progress
    PowerOfTwo,
    /// the same one for the same client address
    Client,
}

/// The seconds that a request may wait until a connection to its upstream is begun.
const POOL_SECONDS: u64 = 30;

/// The options that `demo` and `serve` share.
#[derive(clap::Args)]
struct Running {
    /// Address to listen on: HOST:PORT, [IPV6]:PORT, :PORT (every address), unix:PATH or fd:NUMBER. Repeatable. The
    /// default is 127.0.0.1:8080, unless --tls-listen is given or a service manager passes sockets (LISTEN_FDS). Those are
    /// served beside the addresses given here: sockets named `https` (LISTEN_FDNAMES) speak TLS, the others HTTP.
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,

    /// The permissions of the files of unix sockets, in octal, such as 660. Without it, the umask decides.
    #[arg(long, value_name = "MODE", value_parser = mode)]
    unix_mode: Option<u32>,

    /// The owner of the files of unix sockets: a name or number.
    #[arg(long, value_name = "USER")]
    unix_user: Option<String>,

    /// The group of the files of unix sockets: a name or number.
    #[arg(long, value_name = "GROUP")]
    unix_group: Option<String>,

    /// Address to listen on for TLS (https, HTTP/2 and HTTP/1.1), in the form of --listen. Needs --cert and --key, or
    /// --tls-self-signed. Repeatable.
    #[arg(long, value_name = "ADDR")]
    tls_listen: Vec<String>,

    /// The certificate and its issuers, in PEM. Repeatable, each with its --key; the server chooses the certificate by
    /// the host name that the client requests.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Vec<PathBuf>,

    /// The certificate's private key, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Vec<PathBuf>,

    /// Make a certificate for localhost, for development. Clients do not trust it.
    #[arg(long, conflicts_with = "cert")]
    tls_self_signed: bool,

    /// Require clients to present a certificate signed by an authority in FILE (PEM).
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// Serve HTTP/2 only: by prior knowledge without TLS, by ALPN with TLS. HTTP/1 clients are refused.
    #[arg(long)]
    http2_only: bool,

    /// Serve HTTP/1 only, with and without TLS. Clients that offer only HTTP/2 are refused.
    #[arg(long, conflicts_with = "http2_only")]
    http1_only: bool,

    /// Number of workers; 0 means one per CPU that this process may use, and no more than the CPU quota of its cgroup.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count::<usize>, allow_negative_numbers = true)]
    workers: usize,

    /// The interface to the kernel.
    #[arg(long, value_enum, default_value_t = EngineName::Auto)]
    engine: EngineName,

    /// How connections reach the workers. reuseport: the kernel spreads them over one queue per worker. handoff: one
    /// thread accepts connections and gives each to the worker with the fewest connections.
    #[arg(long, value_enum, default_value_t = BalanceName::Reuseport)]
    balance: BalanceName,

    /// Let other processes that use this option listen on the same port.
    #[arg(long)]
    share_port: bool,

    /// Pin each worker to one CPU.
    #[arg(long)]
    pin: bool,

    /// Memory that the server may use for its peers, such as 64M or 2G (powers of 1,024). The default is half of the memory
    /// that the process may use, or a quarter if the process may use less than 128M.
    #[arg(long, value_name = "BYTES", value_parser = size, allow_negative_numbers = true)]
    memory: Option<usize>,

    /// Maximum number of open connections. By default the limit of file descriptors decides.
    #[arg(long, value_name = "N", value_parser = count::<u32>, allow_negative_numbers = true)]
    connections: Option<u32>,

    /// Log each request to standard error when its response has ended. docs/operating.md explains the fields.
    #[arg(long)]
    access_log: bool,

    /// Log only errors, and the requests with --access-log.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum EngineName {
    /// io_uring if the system allows it, otherwise readiness
    Auto,
    /// io_uring; if it is unavailable, the command says why and ends
    Uring,
    /// epoll
    Readiness,
    /// a thread per connection, for comparison
    Threads,
}

#[derive(Clone, Copy, ValueEnum)]
enum BalanceName {
    Reuseport,
    Handoff,
}

/// Parses a number of bytes with an optional suffix K, M or G (powers of 1,024), also written as KB or KiB. Without a
/// suffix, the number must be at least 1 MiB.
fn size(text: &str) -> Result<usize, String> {
    let lower = text.to_ascii_lowercase();
    let plain = ["ib", "b"].iter().find_map(|unit| lower.strip_suffix(unit)).unwrap_or(&lower);
    let (digits, shift) = match plain.as_bytes().last() {
        Some(b'k') => (&plain[..plain.len() - 1], 10),
        Some(b'm') => (&plain[..plain.len() - 1], 20),
        Some(b'g') => (&plain[..plain.len() - 1], 30),
        _ => (plain, 0),
    };
    let number: usize = digits.parse().map_err(|_| "expected a number of bytes, such as 64M or 2G".to_string())?;
    if shift == 0 && number < 1 << 20 {
        // Such a small number is probably a mistake, because the suffix is missing.
        return Err(format!("{digits} bytes are too few; the suffixes are K, M and G, as in 64M"));
    }
    number.checked_mul(1 << shift).ok_or_else(|| "the number of bytes is too large".to_string())
}

/// Parses a whole number of seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let digits = text.strip_suffix('s').unwrap_or(text);
    digits.parse().map_err(|_| "expected a whole number of seconds, such as 30".to_string())
}

/// Parses a whole number.
fn count<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| "expected a whole number, such as 2".to_string())
}

/// Parses permissions in octal.
fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "expected permissions in octal, such as 660".to_string())
}

/// Splits `PATH=URL` at the first equals sign.
fn proxy_rule(text: &str) -> Result<(String, String), String> {
    let example = "expected PATH=URL, such as /api=http://127.0.0.1:9000";
    let (path, urls) = text.split_once('=').ok_or(example)?;
    if !path.starts_with('/') {
        return Err(format!("{example}: the path must begin with a slash"));
    }
    if path.contains(['{', '}', '*', '?', '#']) {
        return Err(format!("{path:?} is not a plain path; --proxy passes on that path and all paths below it"));
    }
    for url in urls.split(',').map(str::trim) {
        if url.starts_with("unix:") || url.starts_with("http://unix:") {
            return Err(format!("{url:?} is a unix socket; the command cannot pass requests on to one"));
        }
        if !url.contains("://") {
            return Err(format!("{url:?} has no scheme; write http://{url} or https://{url}"));
        }
    }
    Ok((path.to_string(), urls.to_string()))
}

/// Splits `PATTERN=VALUE` at the first equals sign.
fn rule(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((pattern, value)) if !pattern.is_empty() && pattern.matches('*').count() <= 1 => {
            Ok((pattern.to_string(), value.to_string()))
        }
        _ => Err("expected PATTERN=VALUE with at most one * in PATTERN, such as assets/*=max-age=3600".to_string()),
    }
}

/// Parses the path of a health check.
fn check_path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_path.then(|| text.to_string()).ok_or_else(|| "expected a path that begins with a slash, such as /health".into())
}

/// Parses `NAME=VALUE` of a header field.
fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as x-served-by=highwire")?;
    let name: HeaderName = name.parse().map_err(|_| format!("{name:?} is not the name of a header field"))?;
    if proxy::is_of_connection(&name) || matches!(name.as_str(), "expect" | "te" | "trailer") {
        return Err(format!("{name} belongs to the connection and cannot be set"));
    }
    Ok((name, value.parse().map_err(|_| format!("{value:?} cannot be the value of a header field"))?))
}

impl Serve {
    fn app(self) -> Result<(App, Running), String> {
        let proxies = self.proxies()?;
        let handler = self.handler_time();
        let files = Files::new(self.folder);
        let files = if self.index.is_empty() { files.without_index() } else { files.index(self.index) };
        let files = if self.listing { files.listing() } else { files };
        let files = if self.hidden { files.hidden() } else { files };
        let files = if self.precompressed { files.precompressed() } else { files };
        let files = match self.single_page {
            Some(page) => files.single_page(page),
            None => files,
        };
        let files = match self.not_found {
            Some(page) => files.error_page(StatusCode::NOT_FOUND, page),
            None => files,
        };
        let rules = self.cache_control.into_iter();
        let files = rules.fold(files, |files, (pattern, value)| files.cache_control(pattern, value));
        let has_root = proxies.iter().any(|(path, _)| path == "/");
        if has_root {
            tracing::info!("no files are served, because --proxy / passes all paths on");
        }
        let app = if has_root { App::new() } else { App::new().files("/", files) };
        let app = proxies.into_iter().fold(app, |app, (path, proxy)| app.proxy(&path, proxy));
        let app = app.configure(|config| config.timeouts.handler = handler);
        Ok((if self.compress { app.with(Compression::new()) } else { app }, self.running))
    }

    /// Returns the engine's time limit for a request. It must not give a request up before the time of its upstreams is over, with
    /// all attempts. Zero means no limit.
    fn handler_time(&self) -> Duration {
        let usual = Timeouts::default().handler;
        match self.proxy_timeout {
            _ if self.proxy.is_empty() => usual,
            0 => Duration::ZERO,
            seconds => {
                let attempt = seconds.saturating_add(self.proxy_connect_timeout);
                let attempts = u64::try_from(self.proxy_retries).unwrap_or(u64::MAX).saturating_add(1);
                usual.max(Duration::from_secs(attempt.saturating_mul(attempts).saturating_add(POOL_SECONDS)))
            }
        }
    }

    fn proxies(&self) -> Result<Vec<(String, Proxy)>, String> {
        let mut proxies = Vec::new();
        for (path, urls) in &self.proxy {
            let fail = |error: &dyn std::fmt::Display| format!("--proxy {path}={urls}: {error}");
            if proxies.iter().any(|(known, _)| known == path) {
                return Err(fail(&format!("{path} is given twice; write {path}=URL,URL for several servers in turn")));
            }
            let client = || {
                Proxy::client()
                    .head_timeout(Duration::from_secs(self.proxy_timeout))
                    .connect_timeout(Duration::from_secs(self.proxy_connect_timeout))
            };
            let urls_of_it = urls.split(',').map(str::trim);
            let mut proxy = Proxy::with_client(urls_of_it, client).map_err(|error| fail(&error))?;
            proxy = proxy.patience(Duration::from_secs(self.proxy_patience)).retries(self.proxy_retries);
            proxy = if self.proxy_unusual_paths { proxy.allow_unusual_paths() } else { proxy };
            proxy = proxy.balance(match self.proxy_balance {
                ProxyBalance::RoundRobin => proxy::Balance::RoundRobin,
                ProxyBalance::LeastPending => proxy::Balance::LeastPending,
                ProxyBalance::PowerOfTwo => proxy::Balance::PowerOfTwo,
                ProxyBalance::Client => proxy::Balance::ClientAddress,
            });
            proxy = if self.proxy_strip { proxy.strip_prefix(path) } else { proxy };
            proxy = if self.proxy_host { proxy.preserve_host() } else { proxy };
            proxy = match &self.proxy_check {
                Some(check) => proxy.health_check(HealthCheck::new(check)),
                None => proxy,
            };
            for (name, value) in self.proxy_header.iter().cloned() {
                proxy = if value.is_empty() { proxy.remove_header(name) } else { proxy.set_header(name, value) };
            }
            for (name, value) in self.proxy_response_header.iter().cloned() {
                proxy = match value.is_empty() {
                    true => proxy.remove_response_header(name),
                    false => proxy.set_response_header(name, value),
                };
            }
            proxies.push((path.clone(), proxy));
        }
        Ok(proxies)
    }
}

fn main() -> ExitCode {
    // Must run before the first thread starts, because glibc assigns a heap to a thread when the thread first
    // allocates.
    highwire::server::share_heap();
    match Command::parse().action {
        Action::Serving(serving) => start(serving),
        Action::Bench(bench) => bench.run(),
    }
}

/// Starts the log and the server, and runs it to its end.
fn start(serving: Serving) -> ExitCode {
    let (Serving::Demo(Demo { running, .. }) | Serving::Serve(Serve { running, .. })) = &serving;
    let level = if running.quiet { LevelFilter::ERROR } else { LevelFilter::INFO };
    // The requests are logged because they were asked for.
    let levels = Targets::new().with_default(level).with_target("highwire::access", LevelFilter::INFO);
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            eprintln!("highwire: cannot start the log thread: {error}");
            return ExitCode::FAILURE;
        }
    };
    log.take_panics();
    let lines = tracing_subscriber::fmt::layer().with_writer(log.clone()).with_ansi(false);
    tracing_subscriber::registry().with(lines.with_filter(levels)).init();
    let (app, running) = match serving {
        Serving::Demo(Demo { broker, running }) => match topics(broker.as_deref()) {
            Ok(topics) => (highwire_cli::demo::app_with(topics), running),
            Err(error) => {
                log.write(format!("highwire: --broker: {error}\n").as_bytes());
                log.flush();
                return ExitCode::FAILURE;
            }
        },
        Serving::Serve(serve) => match serve.app() {
            Ok(app) => app,
            Err(error) => {
                log.write(format!("highwire: {error}\n").as_bytes());
                log.flush();
                return ExitCode::FAILURE;
            }
        },
    };
    let code = match run(app, &running) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.write(format!("highwire: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    };
    log.flush();
    code
}

/// Returns the topics of the demo's chat.
fn topics(broker: Option<&str>) -> Result<Topics, String> {
    let builder = highwire_cli::chat::topics();
    match broker {
        None => Ok(builder.build()),
        #[cfg(feature = "redis")]
        Some(url) if url.starts_with("redis:") || url.starts_with("unix:") => {
            let broker = highwire::topics::Redis::new(url).map_err(|error| format!("{url}: {error}"))?;
            Ok(builder.broker(broker).build())
        }
        #[cfg(feature = "nats")]
        Some(url) if url.starts_with("nats:") => {
            let broker = highwire::topics::Nats::new(url).map_err(|error| format!("{url}: {error}"))?;
            Ok(builder.broker(broker).build())
        }
        Some(url) => {
            let known = [("redis", cfg!(feature = "redis")), ("nats", cfg!(feature = "nats"))];
            let known: Vec<_> = known.into_iter().filter(|(_, is_known)| *is_known).map(|(name, _)| name).collect();
            let known = if known.is_empty() { "no broker".into() } else { known.join(" and ") };
            Err(format!("{url}: this command knows {known}; others need `--features redis` or `--features nats`"))
        }
    }
}

impl Running {
    fn has_tls_options(&self) -> bool {
        !self.cert.is_empty() || !self.key.is_empty() || self.client_ca.is_some() || self.tls_self_signed
    }
}

/// Returns the TLS settings that the options describe.
fn tls(running: &Running) -> highwire::Result<TlsConfig> {
    let mut config = TlsConfig::new().log_keys();
    if running.tls_self_signed {
        config = config.self_signed(["localhost", "127.0.0.1", "::1"]);
    } else if running.cert.is_empty() || running.cert.len() != running.key.len() {
        let problem = "TLS needs --cert and --key, the same number of each, or --tls-self-signed";
        return Err(highwire::Error::Setting(problem.to_string()));
    }
    for (cert, key) in running.cert.iter().zip(&running.key) {
        config = config.certificate_files(cert, key);
    }
    Ok(match &running.client_ca {
        Some(file) => config.client_auth(ClientAuth::Required(file.clone())),
        None => config,
    })
}

fn run(app: App, running: &Running) -> highwire::Result<()> {
    let engine = match running.engine {
        EngineName::Auto => Engine::Auto,
        EngineName::Uring => Engine::Uring,
        EngineName::Readiness => Engine::Readiness,
        EngineName::Threads => Engine::Threads,
    };
    if matches!(engine, Engine::Threads) && !running.tls_listen.is_empty() {
        let problem = "--engine threads cannot be combined with --tls-listen: the engine `threads` has no TLS. \
                       Use --engine auto, uring or readiness, or remove --tls-listen";
        return Err(highwire::Error::Setting(problem.to_string()));
    }
    let balance = match running.balance {
        BalanceName::Reuseport => Balance::ReusePort,
        BalanceName::Handoff => Balance::Handoff,
    };
    let has_unix = running.listen.iter().chain(&running.tls_listen).any(|address| address.starts_with("unix:"));
    if !has_unix && (running.unix_mode.is_some() || running.unix_user.is_some() || running.unix_group.is_some()) {
        let problem = "--unix-mode, --unix-user and --unix-group need an address unix:PATH in --listen or --tls-listen";
        return Err(highwire::Error::Setting(problem.to_string()));
    }
    highwire::server::raise_descriptor_limit();
    let app = app.configure(|config| {
        config.workers = running.workers;
        config.engine = engine;
        config.http1 = !running.http2_only;
        (config.http2_cleartext, config.http2_tls) = (!running.http1_only, !running.http1_only);
        config.balance = balance;
        config.pin = running.pin;
        config.memory = running.memory;
        config.limits.connections = running.connections;
        config.access_log = running.access_log;
        config.socket.reuse_port = running.share_port;
        config.socket.unix_mode = running.unix_mode;
        config.socket.unix_user.clone_from(&running.unix_user);
        config.socket.unix_group.clone_from(&running.unix_group);
    });
    // Who names a descriptor chooses among the inherited sockets.
    let names_one = running.listen.iter().chain(&running.tls_listen).any(|address| address.starts_with("fd:"));
    let inherited = if names_one { Vec::new() } else { Listener::inherited()? };
    let needs_tls = |name: &str| matches!(name, "https" | "tls");
    if running.has_tls_options() && running.tls_listen.is_empty() && !inherited.iter().any(|(name, _)| needs_tls(name))
    {
        let problem = "--cert, --key, --client-ca and --tls-self-signed need --tls-listen, or a socket named https from a service manager";
        return Err(highwire::Error::Setting(problem.to_string()));
    }
    let has_own = !running.listen.is_empty() || !running.tls_listen.is_empty();
    let default = ["127.0.0.1:8080".to_string()];
    let clear = if has_own || !inherited.is_empty() { &running.listen[..] } else { &default[..] };
    let (mut server, mut schemes) = (app.server()?, Vec::new());
    for address in clear {
        server = server.listen(address)?;
        schemes.resize(server.addresses().len(), "http");
    }
    for address in &running.tls_listen {
        server = server.listen_tls(address, tls(running)?)?;
        schemes.resize(server.addresses().len(), "https");
    }
    for (name, listener) in inherited {
        let is_tls = needs_tls(&name);
        let listen = if is_tls { Listen::new().tls(tls(running)?) } else { Listen::new() };
        server = server.listen_on_with(listener, listen)?;
        schemes.push(if is_tls { "https" } else { "http" });
    }
    let stats = server.run_with(|handle| {
        for (scheme, address) in schemes.iter().zip(handle.addresses()) {
            if address.starts_with(|first: char| first.is_ascii_digit() || first == '[') {
                tracing::info!("listening on {scheme}://{address}/");
            } else {
                tracing::info!("listening on {address}");
            }
        }
    })?;
    tracing::info!(report = %stats, "stopped");
    Ok(())
}
