//! Measures the peak memory of a server that gets a large upload, or that sends to many slow readers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::idle;
use super::sample::{Figure, START, Sample, field};
use super::tls::CPU_GIGABYTE;
use crate::process;
use crate::{Error, Result};

pub(super) const PEAK: &str = "peak MiB";

/// The uploaded file, which is sparse and uses no disk space.
const UPLOAD: &str = "target/bench-upload";

/// Creates the uploaded file.
pub(super) fn make_upload(root: &Path, bytes: u64) -> Result<()> {
    let make = || std::fs::File::create(root.join(UPLOAD))?.set_len(bytes);
    make().map_err(|error| Error::doing(UPLOAD, error))
}

pub(super) fn upload_line(port: u16, path: &str) -> String {
    let report = "\\nuploaded:%{size_upload}\\nrate:%{speed_upload}\\n";
    format!("curl -sSf -X POST -T {UPLOAD} -w {report} http://127.0.0.1:{port}{path}")
}

/// Parses the output of [`upload_line`]: the server's answer with its count, then curl's report.
pub(super) fn read_upload(said: &str, cpu_seconds: f64, bytes: u64, server: u32) -> Result<Sample> {
    let number = |label| field(said, label).and_then(|text| text.parse::<f64>().ok());
    let (Some(uploaded), Some(rate)) = (number("uploaded:"), number("rate:")) else {
        return Err(Error::Failed("curl printed no figures".into()));
    };
    let per_gigabyte = cpu_seconds / (bytes as f64 / 1e9);
    let figures = [("MB/s", rate / 1e6), (CPU_GIGABYTE, per_gigabyte), (PEAK, peak_mib(server))];
    let mut sample = Sample::default();
    sample.figures.extend(figures.map(|(name, value)| Figure { name, value }));
    if uploaded != bytes as f64 || !said.contains(&format!("\"bytes\":{bytes}")) {
        sample
            .errors
            .push(format!("curl sent {uploaded} of {bytes} bytes, or the server counted another number of bytes"));
    }
    Ok(sample)
}

pub(super) fn peak_mib(server: u32) -> f64 {
    process::peak_resident_kib(server) as f64 / 1024.0
}

/// The name of the hidden subcommand that reads slowly.
pub(super) const SIP: &str = "sip";
/// The line that the subcommand prints once every connection has received bytes.
const SIPPING: &str = "sipping";

/// The largest number of bytes that a reader reads at once.
const SIP_BYTES: usize = 4096;
/// The interval between the reads of a connection.
const SIP_EVERY: Duration = Duration::from_millis(100);

/// Measures the server's peak memory after `connections` clients have read slowly for `seconds`.
pub(super) fn measure_readers(server: u32, port: u16, path: &str, connections: u32, seconds: f64) -> Result<Sample> {
    let line = idle::own_line(&format!("bench {SIP} {port} {path} {connections}"))?;
    idle::beside(&line, "", SIPPING, || {
        sleep(Duration::from_secs_f64(seconds));
        let mut sample = Sample::default();
        sample.figures.push(Figure { name: PEAK, value: peak_mib(server) });
        let standing = idle::established(port)?;
        if standing < connections {
            sample.errors.push(format!("only {standing} of {connections} readers were left"));
        }
        Ok(sample)
    })
}

/// Runs `bench sip PORT PATH COUNT`: opens connections, sends a request on each, and reads the answers slowly until it
/// is stopped.
pub(super) fn sip(port: u16, path: &str, count: u32) -> Result<()> {
    let one = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(START))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").as_bytes())?;
        Ok(stream)
    };
    let streams: std::io::Result<Vec<TcpStream>> = (0..count).map(|_| one()).collect();
    let mut streams = streams.map_err(|error| Error::doing("cannot open a connection", error))?;
    let mut buffer = [0; SIP_BYTES];
    let mut said = false;
    loop {
        let begun = Instant::now();
        for stream in &mut streams {
            let count = stream.read(&mut buffer).map_err(|error| Error::doing("cannot read an answer", error))?;
            let is_right = said || buffer[..count].starts_with(b"HTTP/1.1 200 ");
            if count == 0 || !is_right {
                return Err(Error::Failed("an answer ended, or its status was not 200".into()));
            }
        }
        if !std::mem::replace(&mut said, true) {
            println!("{SIPPING}");
        }
        sleep(SIP_EVERY.saturating_sub(begun.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_that_is_not_whole_is_an_error() {
        let me = std::process::id();
        for (said, errors) in [
            ("{\"bytes\":2000000000,\"sha256\":\"00\"}\nuploaded:2000000000\nrate:500000000\n", 0),
            ("{\"bytes\":1999999999,\"sha256\":\"00\"}\nuploaded:2000000000\nrate:500000000\n", 1),
            ("{\"bytes\":2000000000,\"sha256\":\"00\"}\nuploaded:1\nrate:500000000\n", 1),
        ] {
            let sample = read_upload(said, 1.0, 2_000_000_000, me).expect("figures");
            assert_eq!(sample.errors.len(), errors, "{said}");
            assert_eq!((sample.value("MB/s"), sample.value(CPU_GIGABYTE)), (Some(500.0), Some(0.5)));
            assert!(sample.value(PEAK) > Some(1.0), "the peak of this process is too small: {:?}", sample.value(PEAK));
        }
        assert!(read_upload("curl: (7)", 1.0, 1, me).is_err());
    }
}
