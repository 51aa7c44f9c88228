//! The command `highwire`.
#![forbid(unsafe_code)]
#![allow(rustdoc::broken_intra_doc_links, reason = "comments on options are what --help says, brackets included")]

mod log;

use clap::builder::ArgPredicate;
use clap::{Parser, Subcommand, ValueEnum};
use highwire::compress::Compression;
use highwire::server::{Balance, Engine};
use highwire::tls::{ClientAuth, TlsConfig};
use highwire::{App, Files, StatusCode};
use log::Log;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::filter::LevelFilter;

/// An HTTP server for people who count cores, kilobytes and milliseconds.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Serve a page that shows what Highwire can do, and routes to try and to measure.
    Demo(Demo),
    /// Serve the files of a folder.
    Serve(Serve),
}

/// Examples:
///   highwire demo
///   highwire demo --listen 0.0.0.0:80 --listen '[::]:80'
///   highwire demo --listen unix:/run/highwire.sock --workers 1 --engine readiness
///   highwire demo --tls-listen 127.0.0.1:8443 --tls-self-signed
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Demo {
    #[command(flatten)]
    running: Running,
}

/// Examples:
///   highwire serve
///   highwire serve public --listen 0.0.0.0:80 --precompressed
///   highwire serve dist --single-page index.html --cache-control 'assets/*=max-age=31536000, immutable'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Serve {
    /// The folder.
    #[arg(value_name = "DIR", default_value = ".")]
    folder: PathBuf,

    /// Show what is in a folder that has no index file.
    #[arg(long)]
    listing: bool,

    /// Also serve files and folders whose names begin with a dot.
    #[arg(long)]
    hidden: bool,

    /// The name of the file that is sent for a folder; empty for none.
    #[arg(long, value_name = "NAME", default_value = "index.html")]
    index: String,

    /// Send FILE.br, FILE.zst or FILE.gz in place of FILE to those who take them.
    #[arg(long)]
    precompressed: bool,

    /// Compress texts and the like for those who take that, where no compressed sibling is sent.
    #[arg(long)]
    compress: bool,

    /// Send this file for paths that lead nowhere and whose last part has no dot.
    #[arg(long, value_name = "FILE")]
    single_page: Option<String>,

    /// Send this file's content where nothing is found.
    #[arg(long, value_name = "FILE")]
    not_found: Option<String>,

    /// What Cache-Control says for files of a pattern, in which one * stands for anything. Repeatable; the first that fits
    /// counts.
    #[arg(long, value_name = "PATTERN=VALUE", value_parser = rule)]
    cache_control: Vec<(String, String)>,

    #[command(flatten)]
    running: Running,
}

/// What every server of this command is told.
#[derive(clap::Args)]
struct Running {
    /// Where to listen: HOST:PORT, [IPV6]:PORT, :PORT (every address), unix:PATH or fd:NUMBER. Repeatable. With
    /// --tls-listen alone, nothing listens in the clear.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:8080",
        default_value_if("tls_listen", ArgPredicate::IsPresent, None)
    )]
    listen: Vec<String>,

    /// Where to listen for TLS (https, HTTP/2 and HTTP/1.1): addresses as for --listen. Needs --cert and --key, or
    /// --tls-self-signed. Repeatable.
    #[arg(long, value_name = "ADDR")]
    tls_listen: Vec<String>,

    /// The certificate and those that it was signed with, in PEM. Repeatable, each with its --key: the name that a
    /// client asks for chooses.
    #[arg(long, value_name = "FILE", requires_all = ["key", "tls_listen"])]
    cert: Vec<PathBuf>,

    /// The certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires_all = ["cert", "tls_listen"])]
    key: Vec<PathBuf>,

    /// Make a certificate for localhost that nobody trusts: for development.
    #[arg(long, conflicts_with = "cert", requires = "tls_listen")]
    tls_self_signed: bool,

    /// Ask clients for a certificate that the ones in FILE (PEM) have signed, and turn away those without one.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    client_ca: Option<PathBuf>,

    /// Speak HTTP/2 only: in the clear by prior knowledge, under TLS by ALPN. HTTP/1 clients are refused.
    #[arg(long)]
    http2_only: bool,

    /// Speak HTTP/1 only, in the clear and under TLS. Clients that offer only HTTP/2 are refused.
    #[arg(long, conflicts_with = "http2_only")]
    http1_only: bool,

    /// How many workers; 0 is one for each CPU.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    workers: usize,

    /// How to talk to the kernel.
    #[arg(long, value_enum, default_value_t = EngineName::Auto)]
    engine: EngineName,

    /// How connections reach the workers: each with a queue of its own, or by one acceptor to the least loaded.
    #[arg(long, value_enum, default_value_t = BalanceName::Reuseport)]
    balance: BalanceName,

    /// Let other processes listen on the same port too, to run N processes on one port.
    #[arg(long)]
    share_port: bool,

    /// Pin each worker to a CPU of its own.
    #[arg(long)]
    pin: bool,

    /// Bytes that the server may hold for its peers, such as 64M or 2G; by default half of what the process may use, or a
    /// quarter below 128M.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    memory: Option<usize>,

    /// Connections at once; by default what the descriptor limit allows.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    connections: Option<u32>,

    /// Log each request to standard error.
    #[arg(long)]
    access_log: bool,

    /// Say less: only errors.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum EngineName {
    /// io_uring where the system has it, else readiness
    Auto,
    /// io_uring; falls back to readiness with a warning
    Uring,
    /// epoll
    Readiness,
    /// a thread for each connection, for comparison
    Threads,
}

#[derive(Clone, Copy, ValueEnum)]
enum BalanceName {
    Reuseport,
    Handoff,
}

/// Reads a number of bytes, also with K, M or G behind it.
fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| "a number of bytes, such as 64M or 2G".to_string())?;
    if shift == 0 && number < 1 << 20 {
        // Nobody means bytes: the unit was left out.
        return Err(format!("these are bytes; write {digits}M for megabytes, {digits}G for gigabytes"));
    }
    number.checked_mul(1 << shift).ok_or_else(|| "more bytes than any machine has".to_string())
}

/// Takes `PATTERN=VALUE` apart.
fn rule(text: &str) -> Result<(String, String), String> {
    let (pattern, value) =
        text.split_once('=').ok_or_else(|| "a pattern, =, and what to say, such as *=no-cache".to_string())?;
    Ok((pattern.to_string(), value.to_string()))
}

impl Serve {
    fn app(self) -> (App, Running) {
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
        let app = App::new().files("/", files);
        (if self.compress { app.with(Compression::new()) } else { app }, self.running)
    }
}

fn main() -> ExitCode {
    let action = Command::parse().action;
    let (Action::Demo(Demo { running }) | Action::Serve(Serve { running, .. })) = &action;
    let level = if running.quiet { LevelFilter::ERROR } else { LevelFilter::INFO };
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            eprintln!("highwire: there is no thread for the log: {error}");
            return ExitCode::FAILURE;
        }
    };
    log.take_panics();
    tracing_subscriber::fmt().with_max_level(level).with_writer(log.clone()).with_ansi(false).init();
    let (app, running) = match action {
        Action::Demo(Demo { running }) => (highwire_cli::demo::app(), running),
        Action::Serve(serve) => serve.app(),
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

/// What the options say about TLS.
fn tls(running: &Running) -> highwire::Result<TlsConfig> {
    let mut config = TlsConfig::new().log_keys();
    if running.tls_self_signed {
        config = config.self_signed(["localhost", "127.0.0.1", "::1"]);
    } else if running.cert.is_empty() || running.cert.len() != running.key.len() {
        let problem = "--tls-listen needs --cert and --key, as many of the one as of the other, or --tls-self-signed";
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
        let problem = "--engine threads and --tls-listen do not go together: the engine `threads` has no TLS. \
                       Leave one of the two out; --engine auto, uring and readiness have TLS";
        return Err(highwire::Error::Setting(problem.to_string()));
    }
    let balance = match running.balance {
        BalanceName::Reuseport => Balance::ReusePort,
        BalanceName::Handoff => Balance::Handoff,
    };
    highwire::server::share_heap();
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
    });
    let mut server = app.server()?;
    for address in &running.listen {
        server = server.listen(address)?;
    }
    for address in &running.tls_listen {
        server = server.listen_tls(address, tls(running)?)?;
    }
    for (number, address) in server.addresses().iter().enumerate() {
        let scheme = if number < running.listen.len() { "http" } else { "https" };
        if address.starts_with(|first: char| first.is_ascii_digit() || first == '[') {
            tracing::info!("listening on {scheme}://{address}/");
        } else {
            tracing::info!("listening on {address}");
        }
    }
    server.run()
}
