//! Tests that the header is as the Rust sources say.

#[path = "../header/make.rs"]
mod make;

#[test]
fn the_header_is_as_the_sources_say() {
    let known = include_str!("../include/highwire.h");
    assert!(make::make() == known, "run `cargo run -p highwire-c --example write_header`");
}

#[test]
fn what_only_rust_programs_need_is_left_out() {
    let rust = "// Gives [`x`].\n//\n// # Safety\n// As promised.\nint f(void);\n// Frees.\nint g(void);\n";
    assert_eq!(make::for_c(rust), "// Gives `x`.\nint f(void);\n// Frees.\nint g(void);\n");
}
