//! Writes `include/highwire.h` anew from the Rust sources. Run it after a change of the library's functions:
//!
//! ```text
//! cargo run -p highwire-c --example write_header
//! ```

#[path = "../header/make.rs"]
mod make;

fn main() -> std::io::Result<()> {
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/include/highwire.h"), make::make())
}
