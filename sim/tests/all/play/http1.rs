//! Plays a case over HTTP/1: sends the case's bytes unchanged, and then a probe request if the connection must still
//! serve HTTP/1.

use super::Talk;
use sim::answers;
use sim::corpus::{Case, Expected};

/// A request whose answer proves that the connection is still open and that nothing follows the last answer.
const PROBE: &[u8] = b"GET /hello HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";

/// A client that plays a case, and the bytes it has received.
pub(crate) struct Client {
    case: Case,
    /// True if the client sends the probe, because the connection must still serve HTTP/1.
    probes: bool,
    bytes: Vec<u8>,
}

impl Client {
    pub(crate) fn new(case: &Case) -> Client {
        let mut case = case.clone();
        let switched = case.expect.iter().any(|expected| expected.status == 101);
        let probes = !case.closes && !switched && !case.eof;
        if probes {
            let probe = Expected { status: 200, body: Some(b"Hello, World!".to_vec()), ..Expected::default() };
            case.expect.push(probe);
            case.closes = true;
        }
        Client { case, probes, bytes: Vec::new() }
    }
}

impl Talk for Client {
    fn begin(&mut self) -> Vec<u8> {
        self.case.send.clone()
    }

    fn ends(&self) -> bool {
        self.case.eof
    }

    fn last_word(&mut self) -> Vec<u8> {
        if self.probes { PROBE.to_vec() } else { Vec::new() }
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        self.bytes.extend_from_slice(bytes);
        Ok(Vec::new())
    }

    fn waits_for_silence(&self) -> bool {
        !self.case.closes
    }

    fn expects_end(&self) -> bool {
        self.case.closes
    }

    fn judge(&self) -> Result<(), String> {
        answers::judge(&self.case, &self.bytes)
    }
}
