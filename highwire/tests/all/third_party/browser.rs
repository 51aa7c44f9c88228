//! The features of this crate as a browser uses them: Chromium on a page that tries forms, cookies, redirects,
//! compressed answers, ranges, streams, events and requests to another origin, over HTTP/1 in the clear and HTTP/2
//! under TLS, on both engines.
//!
//! Needs a real kernel, because the browser is a separate program.

use crate::everything;
use crate::everything::Site;
use crate::programs::{Folder, on_every_engine, program};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

on_every_engine! {
    uring, readiness:
    [in_the_clear, under_tls]
}

/// The longest time that the page may take, which is far more than it needs.
const PATIENCE: Duration = Duration::from_secs(120);

fn in_the_clear(engine: &str) {
    visit(engine, "http");
}

fn under_tls(engine: &str) {
    visit(engine, "https");
}

/// A browser with a page. Dropping the value kills the browser's first process, and the other processes then end.
pub(super) struct Browser {
    process: Child,
    folder: Folder,
}

impl Browser {
    /// Opens a page. Returns `None` if no browser is here.
    pub(super) fn open(name: &str, page: &str) -> Option<Browser> {
        let program = program(&["chromium", "chromium-browser", "google-chrome", "chrome"])?;
        let folder = Folder::new(&format!("browser-{name}"));
        let data = format!("--user-data-dir={}", folder.path("data"));
        let errors = std::fs::File::create(folder.path("log")).expect("a file");
        let mut command = Command::new(program);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--mute-audio",
        ]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync", &data]);
        command.args(["--ignore-certificate-errors", page]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        Some(Browser { process: command.spawn().expect("a browser that starts"), folder })
    }

    /// Returns what the page reports.
    pub(super) fn report<T>(&self, reports: &mpsc::Receiver<T>) -> T {
        let log = || std::fs::read_to_string(self.folder.path("log")).unwrap_or_default();
        reports.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no report; {}", log()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ignores errors, because the browser may already have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn visit(engine: &str, scheme: &str) {
    let place = everything::place(&format!("browser-{engine}-{scheme}"));
    let (sender, reports) = mpsc::channel();
    let Some(site) = Site::start(engine, everything::app(&place, sender)) else { return };
    // The page begins at `localhost` and ends at the IP address, which for a browser is another site.
    let Some(other) = Site::start(engine, everything::elsewhere([site.named(scheme, ""), site.url(scheme, "")])) else {
        return;
    };
    let page = site.named(scheme, &format!("/page?other={}", other.named(scheme, "")));
    let Some(browser) = Browser::open(&format!("{engine}-{scheme}"), &page) else { return };
    assert_eq!(browser.report(&reports), r#"{"wrong":[]}"#);
}
