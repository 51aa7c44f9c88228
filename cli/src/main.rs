//! The command `highwire`.
#![forbid(unsafe_code)]

use clap::builder::ArgPredicate;
use clap::{Parser, Subcommand, ValueEnum};
use highwire::server::{Balance, Engine};
use highwire::tls::{ClientAuth, TlsConfig};
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
}

/// Examples:
///   highwire demo
///   highwire demo --listen 0.0.0.0:80 --listen '[::]:80'
///   highwire demo --listen unix:/run/highwire.sock --workers 1 --engine readiness
///   highwire demo --tls-listen 127.0.0.1:8443 --tls-self-signed
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct Demo {
    /// Where to listen: HOST:PORT, [IPV6]:PORT, :PORT (every address), unix:PATH or fd:NUMBER. Repeatable.
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
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Vec<PathBuf>,

    /// The certificate's key, in PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Vec<PathBuf>,

    /// Make a certificate for localhost that nobody trusts: for development.
    #[arg(long, conflicts_with = "cert")]
    tls_self_signed: bool,

    /// Ask clients for a certificate that the ones in FILE (PEM) have signed, and turn away those without one.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// Speak HTTP/2 only.
    #[arg(long)]
    http2_only: bool,

    /// How many workers; 0 is one for each CPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
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

    /// Bytes that the server may hold for its peers, such as 64M or 2G; by default half of what the process may use.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    memory: Option<usize>,

    /// Connections at once; by default what the descriptor limit allows.
    #[arg(long, value_name = "N")]
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
    /// epoll or kqueue
    Readiness,
    /// a thread for each connection, for comparison
    Threads,
}

#[derive(Clone, Copy, ValueEnum)]
enum BalanceName {
    Reuseport,
    Handoff,
}

/// Reads a number of bytes with K, M or G behind it.
fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| "a number of bytes, such as 65536, 64M or 2G".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "more bytes than any machine has".to_string())
}

fn main() -> ExitCode {
    let Action::Demo(demo) = Command::parse().action;
    let level = if demo.quiet { LevelFilter::ERROR } else { LevelFilter::INFO };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false).init();
    match run(demo) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("highwire: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the options say about TLS.
fn tls(demo: &Demo) -> highwire::Result<TlsConfig> {
    let mut config = TlsConfig::new().log_keys();
    if demo.tls_self_signed {
        config = config.self_signed(["localhost", "127.0.0.1", "::1"]);
    } else if demo.cert.is_empty() || demo.cert.len() != demo.key.len() {
        let problem = "--tls-listen needs --cert and --key, as many of the one as of the other, or --tls-self-signed";
        return Err(highwire::Error::Setting(problem.to_string()));
    }
    for (cert, key) in demo.cert.iter().zip(&demo.key) {
        config = config.certificate_files(cert, key);
    }
    Ok(match &demo.client_ca {
        Some(file) => config.client_auth(ClientAuth::Required(file.clone())),
        None => config,
    })
}

fn run(demo: Demo) -> highwire::Result<()> {
    let engine = match demo.engine {
        EngineName::Auto => Engine::Auto,
        EngineName::Uring => Engine::Uring,
        EngineName::Readiness => Engine::Readiness,
        EngineName::Threads => Engine::Threads,
    };
    let balance = match demo.balance {
        BalanceName::Reuseport => Balance::ReusePort,
        BalanceName::Handoff => Balance::Handoff,
    };
    highwire::server::share_heap();
    highwire::server::raise_descriptor_limit();
    let app = highwire_cli::demo::app().configure(|config| {
        config.workers = demo.workers;
        config.engine = engine;
        config.http1 = !demo.http2_only;
        config.balance = balance;
        config.pin = demo.pin;
        config.memory = demo.memory;
        config.caps.connections = demo.connections;
        config.access_log = demo.access_log;
        config.socket.reuse_port = demo.share_port;
    });
    let mut server = app.server()?;
    for address in &demo.listen {
        server = server.listen(address)?;
    }
    for address in &demo.tls_listen {
        server = server.listen_tls(address, tls(&demo)?)?;
    }
    for (number, address) in server.addresses().iter().enumerate() {
        let scheme = if number < demo.listen.len() { "http" } else { "https" };
        if address.starts_with(|first: char| first.is_ascii_digit() || first == '[') {
            tracing::info!("listening on {scheme}://{address}/");
        } else {
            tracing::info!("listening on {address}");
        }
    }
    server.run()
}
