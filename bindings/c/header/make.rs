//! Makes the text of `include/highwire.h` with cbindgen. An example writes the file, and a test compares it.

use std::path::Path;

/// Returns the text of the header.
pub(crate) fn make() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a configuration");
    let bindings = cbindgen::generate_with_config(folder, config).expect("sources that cbindgen understands");
    let mut bytes = Vec::new();
    bindings.write(&mut bytes);
    in_sections(&for_c(&String::from_utf8(bytes).expect("a header in UTF-8")))
}

/// The sections of the header, in the order in which a program needs them, with the beginnings of the names in each. The
/// longest beginning counts.
const SECTIONS: &[(&str, &[&str])] = &[
    ("Results and errors", &["highwire_result", "highwire_last_error", "highwire_version"]),
    (
        "Handles and strings",
        &[
            "highwire_app$",
            "highwire_server$",
            "highwire_request$",
            "highwire_response$",
            "highwire_stream$",
            "highwire_websocket$",
            "highwire_topics$",
            "highwire_client$",
            "highwire_call$",
            "highwire_reply$",
            "highwire_tls$",
            "highwire_loop$",
            "highwire_string",
        ],
    ),
    (
        "Apps: routes and settings",
        &[
            "highwire_app",
            "highwire_handler",
            "highwire_body_use",
            "highwire_option",
            "highwire_response_hook",
            "highwire_error_hook",
            "highwire_wait_hook",
        ],
    ),
    ("Servers: addresses, start and stop", &["highwire_server", "highwire_tls", "highwire_stats"]),
    ("Requests", &["highwire_request", "highwire_pair_callback"]),
    ("Answers", &["highwire_respon"]),
    (
        "Bodies in parts",
        &["highwire_request_read", "highwire_part_callback", "highwire_respond_stream", "highwire_stream"],
    ),
    ("Multipart forms", &["highwire_field", "highwire_request_multipart"]),
    ("WebSockets", &["highwire_websocket", "highwire_respond_websocket"]),
    (
        "Topics: messages to many WebSockets",
        &["highwire_topics", "highwire_websocket_subscribe", "highwire_websocket_unsubscribe"],
    ),
    ("Calls to other servers", &["highwire_client", "highwire_call", "highwire_reply"]),
    ("A server in the program's own event loop", &["highwire_loop"]),
    (
        "The process: log and memory",
        &["highwire_set_log", "highwire_log", "highwire_set_allocator", "highwire_allocator"],
    ),
];

/// Sorts the items of the header into the sections, each with a title.
fn in_sections(text: &str) -> String {
    const BEGIN: &str = "#ifdef __cplusplus\nextern \"C\" {";
    const END: &str = "#ifdef __cplusplus\n}";
    let (start, items) = text.split_once("#include <stdint.h>\n").expect("the last include");
    let mut sections = vec![Vec::new(); SECTIONS.len()];
    let (mut begin, mut end) = (String::new(), String::new());
    for item in items.split("\n\n").map(str::trim).filter(|item| !item.is_empty()) {
        match name(item) {
            _ if item.starts_with(BEGIN) => begin = format!("\n{item}\n"),
            _ if item.starts_with(END) => end = format!("\n{item}\n"),
            _ if item.starts_with("#endif") => end += &format!("\n{item}\n"),
            Some(name) => sections[section(&name)].push(item),
            None => panic!("an item without a name: {item}"),
        }
    }
    let mut out = format!("{start}#include <stdint.h>\n\n// The sections of this file:\n");
    for (number, (title, _)) in SECTIONS.iter().enumerate() {
        out += &format!("//   {}. {title}\n", number + 1);
    }
    out += &begin;
    for (number, ((title, _), items)) in SECTIONS.iter().zip(&sections).enumerate() {
        let title = format!("// ---- {}. {title} ", number + 1);
        out += &format!("\n{title:-<120}\n");
        items.iter().for_each(|item| out += &format!("\n{item}\n"));
    }
    out + &end
}

/// Returns the name that an item defines, without its comment.
fn name(item: &str) -> Option<String> {
    let code = item.lines().find(|line| !line.starts_with("//"))?;
    let before = match code.split_once("(*") {
        // The type of a callback.
        Some((_, rest)) if code.starts_with("typedef") => rest.split(')').next()?,
        _ => code.split(['(', '{', ';']).next()?,
    };
    let last = before.split(|c: char| !c.is_alphanumeric() && c != '_').rfind(|word| word.starts_with("highwire_"))?;
    Some(last.to_string())
}

/// Returns the index of the section of a name.
fn section(name: &str) -> usize {
    let name = format!("{name}$");
    let length = |beginnings: &[&str]| {
        beginnings.iter().filter(|known| name.starts_with(**known)).map(|known| known.len()).max()
    };
    let found = (0..SECTIONS.len()).filter_map(|at| Some((length(SECTIONS[at].1)?, at))).max();
    found.unwrap_or_else(|| panic!("{name} is in no section of the header: see SECTIONS")).1
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
