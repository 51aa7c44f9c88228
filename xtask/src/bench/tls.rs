//! Command lines of TLS clients, and parsers of their output: openssl for handshakes, curl for downloads.

use super::sample::{Figure, Sample, field};
use crate::{Error, Result};

/// The size of a download in bytes. The path of the scenarios contains it, and nginx serves a file of this size.
pub(super) const DOWNLOAD_BYTES: u64 = 1_000_000_000;

/// The name of the downloaded file in a server's folder `www`, and of Highwire's route.
pub(super) const DOWNLOAD_FILE: &str = "stream";

pub(super) const CPU_CONNECTION: &str = "CPU µs/connection";
pub(super) const CPU_GIGABYTE: &str = "CPU s/GB";

/// Returns a command line for one client that opens a connection for each request, with TLS 1.3 and X25519, as fast as
/// it can. `seconds` is rounded up, because openssl accepts only whole seconds.
pub(super) fn handshakes_line(port: u16, path: &str, resumed: bool, seconds: f64) -> String {
    let kind = if resumed { "-reuse" } else { "-new" };
    let seconds = seconds.ceil().max(1.0);
    format!(
        "env OPENSSL_CONF=bench/scripts/x25519.cnf openssl s_time -connect 127.0.0.1:{port} {kind} -time {seconds} -www {path}"
    )
}

/// Returns a command line for one download with this version of HTTP.
pub(super) fn download_line(port: u16, path: &str, version: &str) -> String {
    let report = "bytes:%{size_download}\\nversion:%{http_version}\\nrate:%{speed_download}\\n";
    format!("curl -sSkf --http{version} -o /dev/null -w {report} https://127.0.0.1:{port}{path}")
}

/// Parses the output of [`handshakes_line`]: a letter for each connection, `r` if its session was resumed and `*` if
/// not, and then `4430 connections in 2 real seconds, 152 bytes read per connection`.
pub(super) fn read_handshakes(said: &str, cpu_seconds: f64, resumed: bool) -> Result<Sample> {
    let summary = said.lines().find_map(|line| {
        let (connections, rest) = line.split_once(" connections in ")?;
        let bytes = rest.split_once("real seconds, ")?.1.split(' ').next()?;
        Some((connections.parse::<f64>().ok()?, bytes.parse::<u64>().ok()?))
    });
    let (connections, bytes) = summary.ok_or_else(|| Error::Failed("openssl counted no connections".into()))?;
    let mut sample = Sample::default();
    sample.figures.push(Figure { name: CPU_CONNECTION, value: cpu_seconds / connections.max(1.0) * 1e6 });
    let letters = said.lines().filter(|line| line.bytes().all(|letter| matches!(letter, b'r' | b'*')));
    let (wanted, what) = if resumed { ('r', "resumed") } else { ('*', "full handshakes") };
    let right = letters.flat_map(str::chars).filter(|&letter| letter == wanted).count() as f64;
    if right < connections {
        sample.errors.push(format!("{right} of {connections} connections were {what}"));
    }
    if bytes == 0 {
        sample.errors.push("there were no answers".into());
    }
    Ok(sample)
}

/// Parses the output of [`download_line`].
pub(super) fn read_download(said: &str, cpu_seconds: f64, version: &str) -> Result<Sample> {
    let number = |label| field(said, label).and_then(|text| text.parse::<f64>().ok());
    let (Some(bytes), Some(rate)) = (number("bytes:"), number("rate:")) else {
        return Err(Error::Failed("curl printed no figures".into()));
    };
    let gigabytes = bytes.max(1.0) / 1e9;
    let figures = [("MB/s", rate / 1e6), (CPU_GIGABYTE, cpu_seconds / gigabytes)];
    let mut sample = Sample::default();
    sample.figures.extend(figures.map(|(name, value)| Figure { name, value }));
    if bytes != DOWNLOAD_BYTES as f64 {
        sample.errors.push(format!("only {bytes} bytes arrived"));
    }
    if let Some(other) = field(said, "version:").filter(|&spoken| spoken != version) {
        sample.errors.push(format!("curl used HTTP/{other}"));
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sample: Result<Sample>, figures: &[(&str, f64)], errors: &[&str]) {
        let sample = sample.expect("figures");
        let found: Vec<(&str, f64)> = sample.figures.iter().map(|figure| (figure.name, figure.value)).collect();
        assert_eq!(found, figures);
        assert_eq!(sample.errors, errors);
    }

    #[test]
    fn handshakes_are_counted_and_must_be_of_their_kind() {
        let said = |letters: &str, bytes: u32| {
            format!(
                "starting\n{letters}\n\n4 connections in 0.1s; 40.00 connections/user sec, bytes read 600\n\
                 4 connections in 2 real seconds, {bytes} bytes read per connection\n"
            )
        };
        let figures = [(CPU_CONNECTION, 250_000.0)];
        check(read_handshakes(&said("rrrr", 152), 1.0, true), &figures, &[]);
        check(read_handshakes(&said("****", 152), 1.0, false), &figures, &[]);
        check(read_handshakes(&said("rr*r", 152), 1.0, true), &figures, &["3 of 4 connections were resumed"]);
        check(read_handshakes(&said("rrrr", 152), 1.0, false), &figures, &["0 of 4 connections were full handshakes"]);
        check(read_handshakes(&said("****", 0), 1.0, false), &figures, &["there were no answers"]);
        assert!(read_handshakes("ERROR\n", 1.0, false).is_err());
    }

    #[test]
    fn a_download_must_be_whole_and_by_its_version() {
        let said = |bytes: u64, version: &str| format!("bytes:{bytes}\nversion:{version}\nrate:500000000\n");
        let figures = [("MB/s", 500.0), (CPU_GIGABYTE, 1.5)];
        check(read_download(&said(DOWNLOAD_BYTES, "2"), 1.5, "2"), &figures, &[]);
        check(read_download(&said(DOWNLOAD_BYTES, "1.1"), 1.5, "2"), &figures, &["curl used HTTP/1.1"]);
        let half = [("MB/s", 500.0), (CPU_GIGABYTE, 3.0)];
        check(read_download(&said(DOWNLOAD_BYTES / 2, "2"), 1.5, "2"), &half, &["only 500000000 bytes arrived"]);
        assert!(read_download("", 1.5, "2").is_err());
    }

    #[test]
    fn clients_are_called_as_they_ask_to_be() {
        let line = handshakes_line(80, "/a", true, 0.5);
        assert!(line.ends_with("openssl s_time -connect 127.0.0.1:80 -reuse -time 1 -www /a"), "{line}");
        let line = download_line(80, "/a?b=1", "1.1");
        assert!(line.starts_with("curl -sSkf --http1.1 ") && line.ends_with(" https://127.0.0.1:80/a?b=1"), "{line}");
    }
}
