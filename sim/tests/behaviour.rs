//! The behaviour suite: every case of the corpus, on every engine and on the simulator, cut in every way.
//!
//! The engines need a real kernel, since that is what they are about; the simulator plays every cut.

use io::Driver;
use io::sim::{Arrived, Faults, Network, Simulated};
use sim::corpus::Case;
use sim::{answers, app, corpus};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

/// What proves that a connection is still open, and that nothing came behind the last answer.
const PROBE: &[u8] = b"GET /hello HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";

fn cases() -> Vec<Case> {
    corpus::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/http1"))
}

/// The case with a request behind it, where the connection is expected to stay open.
fn with_probe(case: &Case) -> Case {
    let mut case = case.clone();
    if wants_probe(&case) {
        let probe =
            corpus::Expected { status: 200, body: Some(b"Hello, World!".to_vec()), ..corpus::Expected::default() };
        case.expect.push(probe);
        case.closes = true;
    }
    case
}

fn wants_probe(case: &Case) -> bool {
    let switched = case.expect.iter().any(|expected| expected.status == 101);
    !case.closes && !switched && !case.eof
}

/// Reports all failures of a run at once.
fn report(engine: &str, failures: &[String], played: usize) {
    assert!(played > 0, "nothing was played");
    assert!(failures.is_empty(), "{engine}: {} of {played} plays failed:\n{}", failures.len(), failures.join("\n\n"));
}

/// How a case is cut for the simulator: whole, byte by byte, and in two at each byte of what is not long; long ones at every
/// 97th byte, which is no divisor of anything in them.
fn cuts(send: &[u8]) -> Vec<Vec<usize>> {
    let every = if send.len() <= 2048 { 1 } else { 97 };
    let mut cuts = vec![vec![], (1..send.len()).collect()];
    cuts.extend((1..send.len()).step_by(every).map(|at| vec![at]));
    cuts
}

/// Plays a case on the simulator: the bytes that came, and whether the connection ended.
fn play_simulated(case: &Case, cut: &[usize]) -> Result<(Vec<u8>, bool), String> {
    let network = Network::new(1, Faults::default());
    let driver = Simulated::new(network.clone()).map_err(|error| error.to_string())?;
    let server = app::app().server().map_err(|error| error.to_string())?;
    let mut worker = server.into_worker(driver).map_err(|error| error.to_string())?;
    let client = network.connect();
    let probe = wants_probe(case);
    let (mut bytes, mut ended) = (Vec::new(), false);
    let mut pieces: Vec<&[u8]> = Vec::new();
    let mut start = 0;
    for &at in cut.iter().chain([&case.send.len()]) {
        pieces.push(&case.send[start..at]);
        start = at;
    }
    pieces.reverse();
    let mut unsent: &[u8] = &[];
    let (mut probed, mut shut) = (false, false);
    // Less than any deadline that would close an idle connection, more than any handler of the corpus takes.
    let end = network.now() + Duration::from_secs(9);
    let mut idle_turns = 0;
    while !ended && network.now() < end {
        if unsent.is_empty() {
            if let Some(piece) = pieces.pop() {
                unsent = piece;
            } else if case.eof && !shut {
                client.shutdown();
                shut = true;
            } else if probe && !probed && idle_turns > 3 {
                unsent = PROBE;
                probed = true;
            }
        }
        let sent = client.send(unsent);
        unsent = &unsent[sent..];
        worker.turn(Some(network.now())).map_err(|error| error.to_string())?;
        let mut any = sent > 0;
        while let Some(arrived) = client.receive(usize::MAX) {
            any = true;
            match arrived {
                Arrived::Bytes(more) => bytes.extend(more),
                Arrived::End => {
                    ended = true;
                    break;
                }
                Arrived::Reset => return Err("a reset".to_string()),
            }
        }
        if any || !worker.driver().is_idle() {
            idle_turns = 0;
            continue;
        }
        idle_turns += 1;
        if idle_turns > 3 && pieces.is_empty() && unsent.is_empty() && (!probe || probed) {
            if !case.closes && !probe && network.now().nanoseconds > 5_000_000_000 {
                break;
            }
            network.advance(Duration::from_millis(100));
        }
    }
    Ok((bytes, ended))
}

#[test]
fn every_case_on_the_simulator_in_every_cut() {
    let (mut failures, mut played) = (Vec::new(), 0);
    for case in cases() {
        let expected = with_probe(&case);
        for cut in cuts(&case.send) {
            played += 1;
            let judged = play_simulated(&case, &cut).and_then(|(bytes, ended)| {
                answers::judge(&expected, &bytes)?;
                if ended == expected.closes { Ok(()) } else { Err(format!("ended: {ended}")) }
            });
            if let Err(error) = judged {
                let cut = if cut.len() > 1 { "each byte".to_string() } else { format!("{cut:?}") };
                failures.push(format!("{} cut at {cut}: {error}", case.name));
                break;
            }
        }
    }
    report("sim", &failures, played);
}

fn play_real(address: &str, case: &Case, piece: usize) -> Result<(Vec<u8>, bool), String> {
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let patience = if case.closes || wants_probe(case) { Duration::from_secs(20) } else { Duration::from_millis(300) };
    stream.set_read_timeout(Some(patience)).map_err(|error| error.to_string())?;
    // The server may close before it has read all: then the rest does not matter.
    let mut gone = false;
    for part in case.send.chunks(piece.max(1)) {
        if stream.write_all(part).is_err() {
            gone = true;
            break;
        }
    }
    if wants_probe(case) && !gone {
        gone = stream.write_all(PROBE).is_err();
    }
    if case.eof && !gone {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65536]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok((bytes, true)),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok((bytes, false));
            }
            Err(error) => return Err(format!("{error} after {:?}", String::from_utf8_lossy(&bytes))),
        }
    }
}

fn on_engine(engine: highwire::server::Engine, name: &str) {
    let app = app::app().configure(|config| config.engine = engine);
    let server = app.listen("127.0.0.1:0").expect("a free port");
    let handle = server.start().expect("a server that starts");
    let address = handle.addresses()[0].clone();
    let (mut failures, mut played) = (Vec::new(), 0);
    for case in cases() {
        let expected = with_probe(&case);
        let half = case.send.len() / 2 + 1;
        let pieces = if case.send.len() < 2000 { vec![usize::MAX, 1, half] } else { vec![usize::MAX, half] };
        for piece in pieces {
            played += 1;
            let judged = play_real(&address, &case, piece).and_then(|(bytes, ended)| {
                answers::judge(&expected, &bytes)?;
                if ended == expected.closes { Ok(()) } else { Err(format!("ended: {ended}")) }
            });
            if let Err(error) = judged {
                failures.push(format!("{} in pieces of {piece}: {error}", case.name));
                break;
            }
        }
    }
    handle.abort();
    handle.wait().expect("a server that ends");
    report(name, &failures, played);
}

/// Needs a real kernel: the driver under test is the kernel's io_uring.
#[test]
fn every_case_on_uring() {
    if let Err(error) = io::Uring::new() {
        println!("not run: {error}");
        return;
    }
    on_engine(highwire::server::Engine::Uring, "uring");
}

/// Needs a real kernel: the driver under test is the kernel's readiness.
#[test]
fn every_case_on_readiness() {
    on_engine(highwire::server::Engine::Readiness, "readiness");
}

/// Needs a real kernel: the engine blocks in its calls.
#[test]
fn every_case_on_threads() {
    on_engine(highwire::server::Engine::Threads, "threads");
}

#[test]
fn drivers_have_names() {
    let network = Network::new(1, Faults::default());
    assert_eq!(Simulated::new(network).expect("a notifier").name(), "sim");
}
