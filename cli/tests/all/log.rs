//! Tests the demo with a full or closed standard error. It loses log lines, but still answers requests and still ends.

use crate::demo::{HIGHWIRE, get, until};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

/// Starts the demo and reads its log up to the line with its address.
fn start(engine: &str) -> (Child, BufReader<ChildStderr>, String) {
    let mut command = Command::new(HIGHWIRE);
    command.args(["demo", "--engine", engine, "--workers", "1", "--access-log", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("a process");
    let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
    let found = log.by_ref().lines().find_map(|line| {
        let line = line.expect("a line");
        Some(line.split_once("listening on http://")?.1.trim_end_matches('/').to_string())
    });
    (child, log, found.expect("an address"))
}

fn stop(mut child: Child) -> ExitStatus {
    let stopped = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill");
    assert!(stopped.success());
    let mut status = None;
    let has_ended = until(|| {
        status = child.try_wait().expect("a status");
        status.is_some()
    });
    if !has_ended {
        child.kill().expect("a process");
    }
    status.expect("the demo ends after SIGTERM")
}

/// Causes more log lines than the pipe and the queue hold: 2,500 requests of 3 KB each.
fn fill(address: &str) {
    let target = format!("/hello?{}", "a".repeat(3000));
    for _ in 0..2500 {
        get(address, &target).expect("an answer");
    }
}

#[test]
fn a_full_pipe_costs_lines_only() {
    for engine in ["auto", "readiness"] {
        let (child, mut log, address) = start(engine);
        fill(&address);
        assert!(stop(child).success(), "{engine}");
        let mut kept = String::new();
        log.read_to_string(&mut kept).expect("the bytes in the pipe");
        assert!(kept.contains("target=\"/hello?aaa"), "{engine}: {kept}");
    }
}

#[test]
fn a_closed_pipe_costs_lines_only() {
    for engine in ["auto", "readiness"] {
        let (child, log, address) = start(engine);
        drop(log);
        for _ in 0..10 {
            get(&address, "/hello").expect("an answer");
        }
        assert!(stop(child).success(), "{engine}");
    }
}
