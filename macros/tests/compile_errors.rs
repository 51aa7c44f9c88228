//! The likeliest mistakes of programs, each with what the compiler says. `TRYBUILD=overwrite cargo test -p highwire-macros` writes the messages again.
//!
//! The messages are those of one version of the compiler, so with others the test only says that it has not run.

/// The version whose messages are in the files.
const VERSION: &str = "1.95.";

#[test]
fn mistakes_are_explained() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_string());
    let version = std::process::Command::new(compiler).arg("--version").output().expect("a compiler");
    if !String::from_utf8_lossy(&version.stdout).starts_with(&format!("rustc {VERSION}")) {
        println!("not run: the messages are those of Rust {VERSION}");
        return;
    }
    let cases = trybuild::TestCases::new();
    // With programs that compile, all are built and not only checked, which some errors need.
    cases.pass("tests/compiles/*.rs");
    cases.compile_fail("tests/compile_errors/*.rs");
}
