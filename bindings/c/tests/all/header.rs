//! Tests that the header is as the Rust sources say.

use crate::programs;
#[path = "../../header/make.rs"]
mod make;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn the_header_is_as_the_sources_say() {
    let known = include_str!("../../include/highwire.h");
    assert!(make::make() == known, "run `cargo run -p highwire-c --example write_header`");
}

#[test]
fn what_only_rust_programs_need_is_left_out() {
    let rust = "// Gives [`x`].\n//\n// # Safety\n// As promised.\nint f(void);\n// Frees.\nint g(void);\n";
    assert_eq!(make::for_c(rust), "// Gives `x`.\nint f(void);\n// Frees.\nint g(void);\n");
}

/// A handle in the place of another one, which no compiler accepts, and in its own, which each does.
const HANDLES: &[(&str, bool)] = &[
    ("highwire_app app; highwire_server server; highwire_server_new(app, &server);", true),
    ("highwire_app app; highwire_server server; highwire_server_new(server, &server);", false),
    ("highwire_app app; highwire_app_new(&app); highwire_server_run(app);", false),
    ("highwire_request request; highwire_response response; highwire_respond_with(request, response);", true),
    ("highwire_request request; highwire_response response; highwire_respond_with(response, request);", false),
    ("highwire_stream stream; highwire_response_free(stream);", false),
    ("highwire_respond(7, 200, 0, 0, 0);", false),
    ("highwire_reply reply = {0}; if (reply.id == 0) highwire_reply_free(reply);", true),
];

#[test]
fn handles_of_other_types_do_not_compile() {
    for build in programs::BUILDS.iter().filter(|build| programs::has(build.compiler)) {
        let language = if build.standard.starts_with("c++") { "c++" } else { "c" };
        for (body, compiles) in HANDLES {
            let mut command = Command::new(build.compiler);
            command.args(["-x", language, &format!("-std={}", build.standard), "-fsyntax-only", "-I"]);
            command.arg(programs::root().join("include")).arg("-");
            let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a compiler");
            let source = format!("#include <highwire.h>\nvoid f(void);\nvoid f(void) {{ {body} }}\n");
            child.stdin.take().expect("its input").write_all(source.as_bytes()).expect("the source");
            let output = child.wait_with_output().expect("its end");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.success(), *compiles, "{build:?}: {body}\n{said}");
        }
    }
}
