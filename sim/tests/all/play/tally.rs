//! Plays cases in several ways and collects the failures. After a failure it skips the other ways of that case.

use super::{Layer, Real, Stage, Talk};
use sim::tls::Http;

/// The number of failures after which no more cases are played through sockets, because each may take a client's
/// timeout.
const ENOUGH: usize = 5;

/// The plays and failures of a test.
pub(crate) struct Tally {
    engine: String,
    failures: Vec<String>,
    played: usize,
}

impl Tally {
    pub(crate) fn new(engine: &str) -> Tally {
        Tally { engine: engine.to_string(), failures: Vec::new(), played: 0 }
    }

    /// Plays a case on the simulator in each way: protocol, layer and splits.
    pub(crate) fn on_stage<'c>(
        &mut self,
        mut stage: Stage,
        case: &str,
        ways: impl IntoIterator<Item = (Http, Layer, Vec<usize>)>,
        talk: impl Fn(Http) -> Box<dyn Talk + 'c>,
    ) {
        for (http, layer, cut) in ways {
            let outcome = stage.play(&mut *talk(http), layer, http, &cut);
            let cut = if cut.len() > 1 { "each byte".to_string() } else { format!("{cut:?}") };
            if !self.count(outcome, || format!("{case} by {http:?} over {layer:?} cut at {cut}")) {
                break;
            }
        }
        if let Err(error) = stage.end() {
            self.failures.push(format!("{case}: {error}"));
        }
    }

    /// Plays a case through sockets in each way: protocol, layer and piece size.
    pub(crate) fn through<'c>(
        &mut self,
        real: &Real,
        case: &str,
        ways: impl IntoIterator<Item = (Http, Layer, usize)>,
        talk: impl Fn(Http) -> Box<dyn Talk + 'c>,
    ) {
        for (http, layer, piece) in ways {
            if self.failures.len() == ENOUGH {
                return;
            }
            let outcome = real.play(&mut *talk(http), layer, http, piece);
            if !self.count(outcome, || format!("{case} by {http:?} over {layer:?} in pieces of {piece}")) {
                return;
            }
        }
    }

    fn count(&mut self, outcome: Result<(), String>, what: impl FnOnce() -> String) -> bool {
        self.played += 1;
        outcome.map_err(|error| self.failures.push(format!("{}: {error}", what()))).is_ok()
    }

    /// Panics with all failures if there is one.
    pub(crate) fn report(self) {
        let Tally { engine, failures, played } = self;
        assert!(played > 0, "nothing was played");
        assert!(
            failures.is_empty(),
            "{engine}: {} of {played} plays failed:\n{}",
            failures.len(),
            failures.join("\n\n")
        );
    }
}
