//! Tests the page of the chat in Chromium with two windows, one as narrow as a phone. The test controls the browser
//! through the DevTools protocol.

use crate::demo::{Demo, PATIENCE};
use crate::programs::{Folder, program};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tungstenite::{Message, WebSocket};

struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    number: u64,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    fn start(folder: &Folder) -> Option<Browser> {
        let program = program(&["chromium", "chromium-browser", "google-chrome", "chrome"])?;
        let data = format!("--user-data-dir={}", folder.path("data"));
        let flags =
            ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
        let others = ["--disable-component-update", "--disable-sync", "--remote-debugging-port=0", &data];
        let mut command = Command::new(program);
        command.args(flags).args(others).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("a browser");
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut lines = errors.lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("DevTools listening on ").map(str::to_owned));
        // The browser must be able to write its log further.
        std::thread::spawn(move || lines.for_each(drop));
        let url = url.expect("an address of DevTools");
        let address = url.split('/').nth(2).expect("a host").to_string();
        let stream = TcpStream::connect(address).expect("a connection to the browser");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let (socket, _) = tungstenite::client(url, stream).expect("a handshake");
        Some(Browser { child, socket, number: 0 })
    }

    /// Calls a method and returns its result.
    fn call(&mut self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        self.socket.send(Message::text(request.to_string())).expect("a request to the browser");
        loop {
            let Message::Text(text) = self.socket.read().expect("an answer of the browser") else { continue };
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Opens a window of this width and returns its session.
    fn open(&mut self, url: &str, width: u32) -> String {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank", "newWindow": true }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session =
            self.call(None, "Target.attachToTarget", attach)["sessionId"].as_str().expect("an ID").to_string();
        let metrics = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call(Some(&session), "Emulation.setDeviceMetricsOverride", metrics);
        self.call(Some(&session), "Page.navigate", json!({ "url": url }));
        session
    }

    fn evaluate(&mut self, session: &str, script: &str) -> Value {
        let parameters = json!({ "expression": script, "returnByValue": true });
        self.call(Some(session), "Runtime.evaluate", parameters)["result"]["value"].clone()
    }

    /// Waits until a script returns this value.
    fn wait_for(&mut self, session: &str, script: &str, expected: &Value) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.evaluate(session, script);
            if found == *expected {
                return;
            }
            assert!(Instant::now() < deadline, "{script} is {found}, not {expected}");
            std::thread::yield_now();
        }
    }

    /// Types a text into the page's only field and sends it.
    fn enter(&mut self, session: &str, text: &str) {
        self.evaluate(session, "document.getElementById('text').focus()");
        self.call(Some(session), "Input.insertText", json!({ "text": text }));
        self.evaluate(session, "document.getElementById('form').requestSubmit()");
    }
}

const MESSAGES: &str = "[...document.querySelectorAll('#messages li')].map(item => item.innerText)";
const MEMBERS: &str = "[...document.querySelectorAll('#members li')].map(item => item.innerText)";
const FITS: &str = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";

#[test]
fn two_windows_chat_see_each_other_and_resume() {
    let folder = Folder::new("chat-browser");
    let Some(demo) = Demo::start("auto", &["--listen", "127.0.0.1:0", "--workers", "2"]) else { return };
    let Some(mut browser) = Browser::start(&folder) else { return };
    let phone = browser.open(&demo.url("/chat?room=test"), 360);
    browser.wait_for(&phone, "document.readyState", &"complete".into());
    browser.enter(&phone, "ann");
    browser.wait_for(&phone, MEMBERS, &json!(["ann"]));
    browser.enter(&phone, "hello");
    browser.wait_for(&phone, MESSAGES, &json!(["annhello"]));

    let desktop = browser.open(&demo.url("/chat?room=test&name=bob"), 1280);
    browser.wait_for(&desktop, MESSAGES, &json!(["annhello"]));
    browser.wait_for(&desktop, MEMBERS, &json!(["ann", "bob"]));
    browser.wait_for(&phone, MEMBERS, &json!(["ann", "bob"]));
    let long = format!("<img src=x onerror=alert(1)> {}", "w".repeat(300));
    browser.enter(&desktop, &long);
    let both = json!(["annhello", format!("bob{long}")]);
    browser.wait_for(&phone, MESSAGES, &both);
    for session in [&phone, &desktop] {
        assert_eq!(browser.evaluate(session, FITS), json!(true), "the page is not wider than its window");
    }

    // The phone loses its connection, misses a message, and resumes.
    browser.evaluate(&phone, "wait = 1000; socket.close()");
    browser.wait_for(&desktop, MEMBERS, &json!(["bob"]));
    browser.enter(&desktop, "missed");
    browser.wait_for(&desktop, MEMBERS, &json!(["ann", "bob"]));
    browser.wait_for(&phone, MESSAGES, &json!(["annhello", format!("bob{long}"), "bobmissed"]));
}
