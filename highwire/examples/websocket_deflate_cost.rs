//! Compares the CPU time that permessage-deflate adds to an echo with that of flate2 alone: a server in this process echoes
//! JSON messages of 1 KiB with and without compression, and then flate2 alone inflates and deflates the same messages. The
//! last line is the added time divided by flate2's; 1 would mean that nothing but flate2 costs time.
//!
//! `cargo run --release -p highwire --example websocket_deflate_cost` prints the CPU time of the server's thread for each
//! message. Only Linux counts it.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use highwire::ws::{Deflate, Message, WebSocketUpgrade};
use highwire::{App, server::Engine};
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The messages in flight.
const BATCH: usize = 64;

/// The batches of a round.
const BATCHES: usize = 300;

const ROUNDS: usize = 7;

/// The level that the server uses by default.
const LEVEL: u32 = 6;

fn main() -> io::Result<()> {
    let app = App::new().get("/", |upgrade: WebSocketUpgrade| {
        let upgrade = upgrade.deflate(Deflate::new());
        upgrade.on_message(|socket, message| {
            if let Ok(message @ Message::Text(_)) = message {
                let _ = socket.try_send(message);
            }
        })
    });
    let app = app.configure(|config| (config.workers, config.engine) = (1, Engine::Readiness));
    let handle = app.listen("127.0.0.1:0").and_then(|server| server.start()).map_err(io::Error::other)?;
    let address = handle.addresses()[0].to_string();
    let task = worker()?;
    let messages: Vec<String> = (0..BATCH).map(json).collect();
    let (mut plain, mut deflated) = (
        Client::new(&address, "")?,
        Client::new(
            &address,
            "permessage-deflate; \
        server_no_context_takeover; client_no_context_takeover",
        )?,
    );
    let (mut plain_us, mut deflated_us, mut library_us) = (Vec::new(), Vec::new(), Vec::new());
    let frames: Vec<u8> = messages.iter().flat_map(|message| frame(0x81, message.as_bytes())).collect();
    let compressed: Vec<Vec<u8>> =
        messages.iter().map(|message| deflate(&mut deflater(), message.as_bytes())).collect();
    let compressed_frames: Vec<u8> = compressed.iter().flat_map(|message| frame(0xc1, message)).collect();
    for _ in 0..ROUNDS {
        for (client, frames, times) in
            [(&mut plain, &frames, &mut plain_us), (&mut deflated, &compressed_frames, &mut deflated_us)]
        {
            let before = cpu(&task)?;
            for _ in 0..BATCHES {
                client.stream.write_all(frames)?;
                client.read_frames(BATCH)?;
            }
            times.push(cpu(&task)? - before);
        }
        let own = format!("/proc/self/task/{}/schedstat", own_task()?);
        let before = cpu(&own)?;
        let (mut deflater, mut inflater) = (deflater(), Decompress::new(false));
        for _ in 0..BATCHES {
            for message in &compressed {
                inflater.reset(false);
                let mut inflated = Vec::with_capacity(2048);
                let mut tail = message.clone();
                tail.extend_from_slice(&[0, 0, 0xff, 0xff]);
                inflater.decompress_vec(&tail, &mut inflated, FlushDecompress::Sync).map_err(io::Error::other)?;
                deflater.reset();
                std::hint::black_box(deflate(&mut deflater, &inflated));
            }
        }
        library_us.push(cpu(&own)? - before);
    }
    let [plain, deflated, library] = [plain_us, deflated_us, library_us].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2] / (BATCH * BATCHES) as f64
    });
    println!("CPU us for each echo of 1 KiB of JSON, {BATCH} in flight, medians of {ROUNDS} rounds:");
    println!("  without compression {plain:.2}");
    println!("  with compression    {deflated:.2}");
    println!("  the library alone   {library:.2}");
    println!("  compression over the library: {:.3}", (deflated - plain) / library);
    handle.shutdown();
    handle.join().map_err(io::Error::other)?;
    Ok(())
}

/// Returns JSON of 1 KiB.
fn json(number: usize) -> String {
    let mut text = String::from("[");
    let mut id = number * 1000;
    while text.len() < 1000 {
        text += &format!(
            r#"{{"id":{id},"name":"user{}","active":{},"balance":{}.{}}},"#,
            id * 7,
            id.is_multiple_of(3),
            id * 13,
            id % 97
        );
        id += 1;
    }
    text.truncate(1023);
    text.push(']');
    text
}

/// Returns a frame with a mask.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ ..126 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn deflater() -> Compress {
    Compress::new(Compression::new(LEVEL), false)
}

/// Deflates a message as RFC 7692 describes.
fn deflate(deflater: &mut Compress, message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    // The vector has room for everything, and the library reports an error only for a wrong use.
    let _ = deflater.compress_vec(message, &mut out, FlushCompress::Sync);
    out.truncate(out.len() - 4);
    out
}

struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn new(address: &str, extensions: &str) -> io::Result<Client> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        write!(
            stream,
            "GET / HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-extensions: {extensions}\r\n\r\n"
        )?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        if !head.starts_with(b"HTTP/1.1 101") {
            return Err(io::Error::other(String::from_utf8_lossy(&head).into_owned()));
        }
        Ok(Client { stream, received: Vec::new() })
    }

    fn read_frames(&mut self, count: usize) -> io::Result<()> {
        let (mut seen, mut at) = (0, 0);
        while seen < count {
            let rest = &self.received[at..];
            let size = match rest {
                [_, length @ ..126, ..] => 2 + usize::from(*length),
                [_, 126, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
                _ => usize::MAX,
            };
            if size <= rest.len() {
                (seen, at) = (seen + 1, at + size);
                continue;
            }
            let mut part = [0; 65_536];
            let count = self.stream.read(&mut part)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.extend_from_slice(&part[..count]);
        }
        self.received.drain(..at);
        Ok(())
    }
}

/// Returns the file with the CPU time of the server's worker.
fn worker() -> io::Result<String> {
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if fs::read_to_string(path.join("comm"))?.starts_with("highwire-0") {
            return Ok(path.join("schedstat").display().to_string());
        }
    }
    Err(io::Error::other("there is no worker"))
}

/// Returns the number of this thread.
fn own_task() -> io::Result<String> {
    let link = fs::read_link("/proc/thread-self")?;
    Ok(link.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
}

/// Returns the CPU time of a thread in microseconds.
fn cpu(schedstat: &str) -> io::Result<f64> {
    let text = fs::read_to_string(schedstat)?;
    let nanoseconds = text.split(' ').next().and_then(|text| text.parse::<f64>().ok());
    nanoseconds.map(|nanoseconds| nanoseconds / 1000.0).ok_or_else(|| io::Error::other("no CPU time"))
}
