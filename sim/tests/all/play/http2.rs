//! Plays a case over HTTP/2: sends each request on its own stream, and then a ping if the connection must stay open.

use super::Talk;
use sim::answers;
use sim::corpus_http2::{Case, Step};
use sim::frames::{self, Heard};
use sim::translate::Outcome;

const PROTOCOL_ERROR: u32 = 1;

/// A client that plays a case, and the frames it has received.
pub(crate) struct Client<'c> {
    case: &'c Case,
    frames: frames::Client,
}

impl Client<'_> {
    pub(crate) fn new(case: &Case) -> Client<'_> {
        Client { case, frames: frames::Client::new() }
    }
}

impl Talk for Client<'_> {
    fn begin(&mut self) -> Vec<u8> {
        for step in &self.case.steps {
            match step {
                Step::Ask(request) => drop(self.frames.ask(request)),
                Step::Bytes(bytes) => self.frames.say(bytes),
            }
        }
        self.frames.take()
    }

    fn ends(&self) -> bool {
        self.case.eof
    }

    /// Sends a ping if the connection must stay open. The answer to the ping proves that it is open, and that all
    /// earlier frames have arrived.
    fn last_word(&mut self) -> Vec<u8> {
        if !self.expects_end() {
            self.frames.ping();
        }
        self.frames.take()
    }

    fn hear(&mut self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        self.frames.hear(bytes)?;
        Ok(self.frames.take())
    }

    fn expects_end(&self) -> bool {
        self.case.eof || self.case.fails.is_some()
    }

    fn judge(&self) -> Result<(), String> {
        for (number, outcome) in self.case.expect.iter().enumerate() {
            let stream = 2 * number as u32 + 1;
            let nothing = Heard::default();
            let heard = self.frames.heard.get(&stream).unwrap_or(&nothing);
            compare(heard, outcome).map_err(|error| format!("stream {stream}: {error}\n{heard:?}"))?;
        }
        if self.frames.heard.keys().any(|&stream| stream as usize > 2 * self.case.expect.len()) {
            return Err("an answer on an unexpected stream".to_string());
        }
        let failed = self.frames.goaway.filter(|&code| code != 0);
        if failed != self.case.fails {
            return Err(format!(
                "the error code in GOAWAY is {failed:?}, expected {:?} (None: no GOAWAY, or code 0)",
                self.case.fails
            ));
        }
        if !self.frames.is_between_frames() {
            return Err("a frame is cut short".to_string());
        }
        match self.expects_end() || self.frames.pongs == 1 {
            true => Ok(()),
            false => Err("no answer to the ping".to_string()),
        }
    }
}

fn compare(heard: &Heard, outcome: &Outcome) -> Result<(), String> {
    match (outcome, &heard.answer) {
        (Outcome::Answer(expected) | Outcome::Malformed(expected), Some(answer)) => {
            if !heard.ended || heard.reset.is_some_and(|code| code != 0) {
                return Err(format!("ended {}, reset {:?}", heard.ended, heard.reset));
            }
            answers::compare_interim(&heard.interim, expected)?;
            answers::compare(answer, expected)
        }
        (Outcome::Answer(_), None) => Err("no answer".to_string()),
        (Outcome::Reset(code), None) if heard.reset == Some(*code) => Ok(()),
        (Outcome::Malformed(_), None) if heard.reset == Some(PROTOCOL_ERROR) => Ok(()),
        (Outcome::Nothing, None) if heard.reset.is_none() => Ok(()),
        _ => Err(format!("expected {outcome:?}")),
    }
}
