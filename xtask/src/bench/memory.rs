//! What memory a server needs at most: for one upload that is large, and for many readers that are slow.

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

/// What is uploaded: a file of holes, which takes no place on the disk.
const UPLOAD: &str = "target/bench-upload";

/// Makes the file that is uploaded.
pub(super) fn make_upload(root: &Path, bytes: u64) -> Result<()> {
    let make = || std::fs::File::create(root.join(UPLOAD))?.set_len(bytes);
    make().map_err(|error| Error::doing(UPLOAD, error))
}

pub(super) fn upload_line(port: u16, path: &str) -> String {
    let report = "\\nuploaded:%{size_upload}\\nrate:%{speed_upload}\\n";
    format!("curl -sSf -X POST -T {UPLOAD} -w {report} http://127.0.0.1:{port}{path}")
}

/// What [`upload_line`] asks curl to say, behind the server's own count.
pub(super) fn read_upload(said: &str, cpu_seconds: f64, bytes: u64, server: u32) -> Result<Sample> {
    let number = |label| field(said, label).and_then(|text| text.parse::<f64>().ok());
    let (Some(uploaded), Some(rate)) = (number("uploaded:"), number("rate:")) else {
        return Err(Error::Failed("curl gave no figures".into()));
    };
    let per_gigabyte = cpu_seconds / (bytes as f64 / 1e9);
    let figures = [("MB/s", rate / 1e6), (CPU_GIGABYTE, per_gigabyte), (PEAK, peak_mib(server))];
    let mut sample = Sample::default();
    sample.figures.extend(figures.map(|(name, value)| Figure { name, value }));
    if uploaded != bytes as f64 || !said.contains(&format!("\"bytes\":{bytes}")) {
        sample.errors.push(format!("of {bytes} bytes {uploaded} were sent, and the server said otherwise"));
    }
    Ok(sample)
}

fn peak_mib(server: u32) -> f64 {
    process::peak_resident_kib(server) as f64 / 1024.0
}

/// The hidden command that reads slowly, and what it says when every connection has got something.
pub(super) const SIP: &str = "sip";
const SIPPING: &str = "sipping";

/// What one reader takes at a time, and how often.
const SIP_BYTES: usize = 4096;
const SIP_EVERY: Duration = Duration::from_millis(100);

/// The server's peak after its readers have read for so long.
pub(super) fn measure_readers(server: u32, port: u16, path: &str, connections: u32, seconds: f64) -> Result<Sample> {
    let line = idle::own_line(&format!("bench {SIP} {port} {path} {connections}"))?;
    idle::beside(&line, "", SIPPING, || {
        sleep(Duration::from_secs_f64(seconds));
        let mut sample = Sample::default();
        sample.figures.push(Figure { name: PEAK, value: peak_mib(server) });
        let standing = idle::established(port)?;
        if standing < connections {
            sample.errors.push(format!("{standing} of {connections} readers were left"));
        }
        Ok(sample)
    })
}

/// `bench sip PORT PATH COUNT`: opens connections, asks on each, and takes little of each answer at a time until it is stopped.
pub(super) fn sip(port: u16, path: &str, count: u32) -> Result<()> {
    let one = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(START))?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n").as_bytes())?;
        Ok(stream)
    };
    let streams: std::io::Result<Vec<TcpStream>> = (0..count).map(|_| one()).collect();
    let mut streams = streams.map_err(|error| Error::doing("a connection", error))?;
    let mut buffer = [0; SIP_BYTES];
    let mut said = false;
    loop {
        let begun = Instant::now();
        for stream in &mut streams {
            let count = stream.read(&mut buffer).map_err(|error| Error::doing("a reader", error))?;
            let is_right = said || buffer[..count].starts_with(b"HTTP/1.1 200 ");
            if count == 0 || !is_right {
                return Err(Error::Failed("a reader got something else than its answer".into()));
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
            assert!(sample.value(PEAK) > Some(1.0), "this process has memory: {:?}", sample.value(PEAK));
        }
        assert!(read_upload("curl: (7)", 1.0, 1, me).is_err());
    }
}
