//! Connections that were served once and then wait: what memory they hold, and the client that keeps them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;

use super::run::{Figure, MEMORY, START, Sample, generator_cpu, pinned};
use crate::process::{self, Running};
use crate::{Error, Result};

/// Memory of connections that wait, each served once. The client is this program again, under a limit of open files of its own.
pub(super) fn measure(server: u32, port: u16, path: &str, connections: u32, warm_up: u32) -> Result<Sample> {
    hold(port, path, warm_up, || ())?;
    let before = process::resident_kib(server);
    let after = hold(port, path, connections, || process::resident_kib(server))?;
    let bytes = (after as f64 - before as f64) * 1024.0 / f64::from(connections);
    let mib = |kib: u64| kib as f64 / 1024.0;
    let figures = [("MiB before", mib(before)), ("MiB after", mib(after)), (MEMORY, bytes)];
    let figures = figures.into_iter().map(|(name, value)| Figure { name, value });
    Ok(Sample { figures: figures.collect(), errors: Vec::new() })
}

/// The hidden command that holds connections.
pub(super) const HOLD: &str = "hold";

/// Says so when every connection was served.
const HOLDING: &str = "holding";

/// Opens connections in another process, has each served once, and calls `look` while they wait.
fn hold<T>(port: u16, path: &str, connections: u32, look: impl FnOnce() -> T) -> Result<T> {
    let me = std::env::current_exe().map_err(|error| Error::doing("this program", error))?;
    let words = [
        me.to_string_lossy().into_owned(),
        "bench".into(),
        HOLD.into(),
        port.to_string(),
        path.into(),
        connections.to_string(),
    ];
    let here = std::env::current_dir().map_err(|error| Error::doing("the current folder", error))?;
    let mut command = pinned(&here, Some(&generator_cpu()), &words);
    let child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| Error::doing(HOLD, error))?;
    let mut running = Running::new(child);
    let mut said = String::new();
    if let Some(stdout) = running.child().stdout.take() {
        let _ = BufReader::new(stdout).read_line(&mut said);
    }
    if said.trim() != HOLDING {
        return Err(Error::Failed(format!("holding {connections} connections did not succeed")));
    }
    let seen = look();
    // The end of its input tells it to leave.
    drop(running.child().stdin.take());
    let _ = running.child().wait();
    Ok(seen)
}

/// `bench hold PORT PATH COUNT`: opens connections, has each served once, and keeps them until the end of its input.
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
    let streams = streams.map_err(|error| Error::doing("a connection", error))?;
    println!("{HOLDING}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(streams);
    Ok(())
}

/// Whether an answer has come whole; it must be a 200 with a Content-Length to ever be.
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
}
