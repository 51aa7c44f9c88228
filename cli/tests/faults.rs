//! The command where the system refuses what it asks for. Needs a real kernel, and strace to play the refusals.

mod demo;
mod programs;

use demo::{Demo, HIGHWIRE, get};
use programs::program;
use std::process::Command;

/// The demo under strace, with a fault injected.
fn under_strace(engine: &str, inject: &str) -> Option<Demo> {
    let mut command = Command::new(program(&["strace"])?);
    command.args([
        // The demo is the child, and strace the grandchild: it is the demo that is ended with the test.
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        &format!("trace={}", inject.split(':').next().unwrap_or(inject)),
    ]);
    command.args(["-e", &format!("inject={inject}"), HIGHWIRE, "demo", "--listen", "127.0.0.1:0", "--workers", "1"]);
    command.args(["--engine", engine]);
    // The harness looks for the ring's descriptor where the engine is uring; a refused ring is what this is about.
    Demo::of(command, "readiness")
}

#[test]
fn where_io_uring_is_forbidden_it_says_so_once_and_serves_on_readiness() {
    for error in ["EPERM", "ENOSYS", "ENOMEM"] {
        let Some(mut demo) = under_strace("uring", &format!("io_uring_setup:error={error}")) else { return };
        demo.wait_for("io_uring is not to be had; running on readiness", 1);
        assert!(get(&demo.addresses[0], "/hello").expect("an answer").ends_with("Hello, World!"));
        assert_eq!(demo.log().matches("io_uring is not to be had").count(), 1, "{error}");
    }
}

#[test]
fn accepting_recovers_from_want_of_descriptors_and_memory() {
    for error in ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"] {
        let Some(demo) = under_strace("readiness", &format!("accept4:error={error}:when=2..4")) else { return };
        for _ in 0..10 {
            assert!(get(&demo.addresses[0], "/hello").expect("an answer").ends_with("Hello, World!"), "{error}");
        }
        assert!(demo.log().contains("accepting is paused"), "{error} was not met:\n{}", demo.log());
    }
}

#[test]
fn errors_of_single_connections_do_not_pause_accepting() {
    let Some(demo) = under_strace("readiness", "accept4:error=ECONNABORTED:when=2..4") else { return };
    for _ in 0..10 {
        assert!(get(&demo.addresses[0], "/hello").expect("an answer").ends_with("Hello, World!"));
    }
    assert!(!demo.log().contains("accepting is paused"));
}
