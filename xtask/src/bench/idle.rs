//! Measures the memory of idle connections that were served once, and contains the client that holds them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;

use super::sample::{Figure, MEMORY, START, Sample, generator_cpu, pinned};
use super::scenario::Protocol;
use crate::process::{self, Running};
use crate::{Error, Result};

/// A client that opens connections, sends one request on each and keeps them open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) protocol: Protocol,
    pub(super) port: u16,
    pub(super) path: &'a str,
}

/// Measures the growth of the server's memory by idle connections that were each served once. The connections of the
/// warm-up stay open meanwhile, so that the growth contains no one-time allocations and is not hidden by memory that
/// they free.
pub(super) fn measure(server: u32, client: Client<'_>, connections: u32, warm_up: u32) -> Result<Sample> {
    let (before, after) = hold(client, warm_up, || {
        let before = process::resident_kib(server);
        let after = hold(client, connections, || {
            let (standing, wanted) = (established(client.port)?, warm_up + connections);
            if standing < wanted {
                return Err(Error::Failed(format!("only {standing} of {wanted} connections are open")));
            }
            Ok(process::resident_kib(server))
        })?;
        Ok((before, after))
    })?;
    let bytes = (after as f64 - before as f64) * 1024.0 / f64::from(connections);
    let mib = |kib: u64| kib as f64 / 1024.0;
    let figures = [("MiB before", mib(before)), ("MiB after", mib(after)), (MEMORY, bytes)];
    let figures = figures.into_iter().map(|(name, value)| Figure { name, value });
    Ok(Sample { figures: figures.collect(), errors: Vec::new() })
}

/// Returns the number of established connections to a local port, counted at the clients' sockets.
pub(super) fn established(port: u16) -> Result<u32> {
    const TABLE: &str = "/proc/net/tcp";
    let text = std::fs::read_to_string(TABLE).map_err(|error| Error::doing(TABLE, error))?;
    Ok(established_in(&text, port))
}

/// Counts the connections in the kernel's table, whose lines are `number: local remote state ...`, with addresses and
/// states in hexadecimal.
fn established_in(table: &str, port: u16) -> u32 {
    let port = format!(":{port:04X}");
    let stands = |line: &&str| {
        let mut words = line.split_whitespace().skip(2);
        words.next().is_some_and(|remote| remote.ends_with(&port)) && words.next() == Some("01")
    };
    table.lines().filter(stands).count() as u32
}

/// The name of the hidden subcommand that holds connections.
pub(super) const HOLD: &str = "hold";

/// The line that the subcommand prints once every connection has been served.
const HOLDING: &str = "holding";

impl Client<'_> {
    /// Returns the client's command line, its standard input, and the line that it prints once every connection has
    /// been served.
    ///
    /// Without TLS, the client is xtask in another process, with its own limit of open files. Under TLS, the client is
    /// h2load with a script that sends one request per connection at once and one after an hour. When half of the
    /// requests are answered, all connections are idle.
    fn call(&self, connections: u32) -> Result<(Vec<String>, String, &'static str)> {
        let Self { protocol, port, path } = self;
        let h2load = |options: &str| {
            let line = format!("h2load {options} --timing-script-file=- -n 2 -m 1 -c {connections}");
            let url = format!("https://127.0.0.1:{port}{path}");
            (words(&line), format!("0\t{url}\n3600000\t{url}\n"), "progress: 50% done")
        };
        Ok(match protocol {
            Protocol::Http1 => {
                (own_line(&format!("bench {HOLD} {port} {path} {connections}"))?, String::new(), HOLDING)
            }
            Protocol::Http1Tls => h2load("--h1"),
            Protocol::Http2Tls => h2load(""),
        })
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Returns a command line that runs xtask with these arguments.
pub(super) fn own_line(text: &str) -> Result<Vec<String>> {
    let me = std::env::current_exe().map_err(|error| Error::doing("cannot find the path of xtask", error))?;
    Ok(std::iter::once(me.to_string_lossy().into_owned()).chain(words(text)).collect())
}

/// Opens connections in another process, sends one request on each, and calls `look` while they are idle.
fn hold<T>(client: Client<'_>, connections: u32, look: impl FnOnce() -> Result<T>) -> Result<T> {
    let (line, script, sign) = client.call(connections)?;
    beside(&line, &script, sign, look)
}

/// Runs a client with `script` as its standard input, calls `look` once the client has printed the line `sign`, and
/// stops the client.
pub(super) fn beside<T>(line: &[String], script: &str, sign: &str, look: impl FnOnce() -> Result<T>) -> Result<T> {
    let here = std::env::current_dir().map_err(|error| Error::doing("cannot find the current folder", error))?;
    let mut command = pinned(&here, Some(&generator_cpu()), line);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut running = Running::new(child.map_err(|error| Error::doing(&line[0], error))?);
    if let Some(mut stdin) = running.child().stdin.take() {
        stdin.write_all(script.as_bytes()).map_err(|error| Error::doing(&line[0], error))?;
    }
    let Some(stdout) = running.child().stdout.take() else { unreachable!("stdout is piped") };
    let mut said = BufReader::new(stdout).lines();
    if !said.any(|line| line.is_ok_and(|line| line == sign)) {
        return Err(Error::Failed(format!("`{}` ended before all its connections were served", line.join(" "))));
    }
    look()
}

/// Runs `bench hold PORT PATH COUNT`: opens connections, sends one request on each, and keeps them until it is stopped.
pub(super) fn hold_connections(port: u16, path: &str, count: u32) -> Result<()> {
    let one = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(START))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").as_bytes())?;
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        while !is_whole(&answer) {
            match stream.read(&mut buffer)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
        Ok(stream)
    };
    let streams: std::io::Result<Vec<TcpStream>> = (0..count).map(|_| one()).collect();
    let _kept = streams.map_err(|error| Error::doing("cannot open a connection or get an answer", error))?;
    println!("{HOLDING}");
    loop {
        std::thread::park();
    }
}

/// Returns true if the answer is complete. An answer without status 200 or without Content-Length never is.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    head.starts_with("HTTP/1.1 200") && length.is_some_and(|length| body.len() >= length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_length_has_come() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", false),
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false),
        ] {
            assert_eq!(is_whole(answer.as_bytes()), expected, "{answer}");
        }
    }

    #[test]
    fn connections_are_counted_once_and_at_their_port_only() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                        0: 0100007F:46B4 00000000:0000 0A 00000000:00000000\n\
                        1: 0100007F:9C40 0100007F:46B4 01 00000000:00000000\n\
                        2: 0100007F:46B4 0100007F:9C40 01 00000000:00000000\n\
                        3: 0100007F:9C41 0100007F:46B4 06 00000000:00000000\n\
                        4: 0100007F:9C42 0100007F:46B5 01 00000000:00000000\n";
        assert_eq!(established_in(table, 18_100), 1);
    }
}
