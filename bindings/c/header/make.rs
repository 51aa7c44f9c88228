//! Makes the text of `include/highwire.h` with cbindgen. An example writes the file, and a test compares it.

use std::path::Path;

/// Returns the text of the header.
pub(crate) fn make() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::generate_with_config(folder, config).expect("sources that cbindgen understands");
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    for_c(&String::from_utf8(bytes).expect("a header in UTF-8"))
}

/// Turns Rust's documentation into comments for C: leaves out the sections about Safety, which repeat what every C programmer
/// expects, and the brackets of links.
pub(crate) fn for_c(text: &str) -> String {
    let (mut out, mut is_safety) = (String::new(), false);
    for line in text.lines() {
        let comment = line.trim_start().strip_prefix("//").map(str::trim);
        match comment {
            Some("# Safety") => is_safety = true,
            Some(_) if is_safety => {}
            Some(_) => {
                out.push_str(&line.replace("[`", "`").replace("`]", "`"));
                out.push('\n');
            }
            None => {
                if is_safety {
                    // The empty comment line before the section.
                    let kept = out.trim_end_matches('\n').trim_end_matches("//").trim_end().len();
                    out.truncate(kept);
                    out.push('\n');
                }
                is_safety = false;
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}
