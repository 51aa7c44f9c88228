//! Tests the command when system calls fail. Needs a real kernel, and strace to inject the errors.

use crate::demo::{Demo, HIGHWIRE, get};
use crate::programs::program;
use std::process::{Command, Stdio};

/// Starts the demo under strace with an injected fault.
fn demo(engine: &str, inject: &str) -> Option<Demo> {
    Demo::of(under_strace(engine, inject)?, engine)
}

/// Returns the command that starts the demo under strace with an injected fault.
fn under_strace(engine: &str, inject: &str) -> Option<Command> {
    let mut command = Command::new(program(&["strace"])?);
    command.args([
        // With -D the demo is the child and strace the grandchild, so that the test kills the demo when it ends.
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
    Some(command)
}

#[test]
fn where_io_uring_is_forbidden_it_says_so_once_and_serves_on_readiness() {
    for error in ["EPERM", "ENOSYS", "ENOMEM"] {
        let Some(mut demo) = demo("auto", &format!("io_uring_setup:error={error}")) else { return };
        demo.wait_for("io_uring is unavailable; using epoll", 1);
        assert!(get(&demo.addresses[0], "/hello").expect("an answer").ends_with("Hello, World!"));
        assert_eq!(demo.log().matches("io_uring is unavailable").count(), 1, "{error}");
    }
}

#[test]
fn where_io_uring_is_asked_for_and_forbidden_the_command_says_why_and_ends() {
    let Some(mut command) = under_strace("uring", "io_uring_setup:error=EPERM") else { return };
    let output = command.stdin(Stdio::null()).output().expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("io_uring is unavailable: ") && said.contains("Operation not permitted"), "{said}");
    assert!(said.contains("the engines `auto` and `readiness` do without it"), "{said}");
    assert!(!said.contains("listening on"), "{said}");
}

#[test]
fn accepting_recovers_from_want_of_descriptors_and_memory() {
    for error in ["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"] {
        let Some(demo) = demo("readiness", &format!("accept4:error={error}:when=2..4")) else { return };
        for _ in 0..10 {
            assert!(get(&demo.addresses[0], "/hello").expect("an answer").ends_with("Hello, World!"), "{error}");
        }
        assert!(demo.log().contains("accepting is paused"), "{error} did not occur:\n{}", demo.log());
    }
}

#[test]
fn errors_of_single_connections_do_not_pause_accepting() {
    let Some(demo) = demo("readiness", "accept4:error=ECONNABORTED:when=2..4") else { return };
    for _ in 0..10 {
        assert!(get(&demo.addresses[0], "/hello").expect("an answer").ends_with("Hello, World!"));
    }
    assert!(!demo.log().contains("accepting is paused"));
}
