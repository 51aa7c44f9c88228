//! `cargo xtask conformance redbot`: checks files of `highwire serve` with REDbot.
//!
//! REDbot requests a resource several times, with and without conditions, ranges and codings, and reports its findings
//! as notes. The check fails on a note of level `BAD` or `WARN` that is not in `ALLOWED`, and if an expected note is
//! missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::conformance::{REPORTS, RUN, create, read, serve};
use crate::{Error, Result, process, python};

/// REDbot and the libraries for its notes and connections, with fixed versions so that the notes stay the same.
const PACKAGES: [&str; 3] = ["redbot==2.7.1", "httplint==2026.10.4", "thor==0.17.0"];

const FOLDER: &str = "target/tools/redbot-2.7.1";

/// Options with which `highwire serve` serves the folder.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
}

const WAYS: &[Way] = &[
    Way { name: "precompressed", options: &["--listing", "--precompressed", "--cache-control", "*.css=max-age=3600"] },
    Way { name: "compressed", options: &["--listing", "--compress"] },
];

/// A path, its expected status, and the notes that prove that REDbot has checked it.
struct Case {
    path: &'static str,
    status: u16,
    notes: &'static [&'static str],
    /// The name of the [`Way`] in which REDbot must find that the answer can be compressed. `*` stands for every way,
    /// and an empty text for none.
    coded: &'static str,
}

/// The notes on a file that supports conditions and ranges.
const FILE: &[&str] = &["CL_CORRECT", "INM_304", "IMS_304", "RANGE_CORRECT"];

const CASES: &[Case] = &[
    Case { path: "/", status: 200, notes: FILE, coded: "compressed" },
    Case { path: "/text.txt", status: 200, notes: FILE, coded: "compressed" },
    Case { path: "/small.txt", status: 200, notes: FILE, coded: "" },
    Case { path: "/style.css", status: 200, notes: FILE, coded: "*" },
    Case { path: "/large.bin", status: 200, notes: FILE, coded: "" },
    Case { path: "/empty.txt", status: 200, notes: &["CL_CORRECT", "INM_304", "IMS_304"], coded: "" },
    Case { path: "/folder", status: 308, notes: &["CL_CORRECT"], coded: "" },
    Case { path: "/folder/", status: 200, notes: &["CL_CORRECT"], coded: "" },
    Case { path: "/nothing", status: 404, notes: &["CL_CORRECT"], coded: "" },
];

/// REDbot's note on an answer that is compressed with gzip on request.
const CODED: &str = "CONNEG_GZIP_GOOD";

/// Notes that are allowed in spite of their level, with the reason. The check also fails if a row is not needed.
const ALLOWED: &[(&str, &str)] = &[
    ("FRESHNESS_HEURISTIC", "only the user knows how long files stay fresh, and can set it with --cache-control"),
    ("RANGE_CL_FULL", "REDbot requests 97 bytes, which is the whole of a smaller file"),
];

/// A note in REDbot's report.
#[derive(Debug, PartialEq, Eq)]
struct Note {
    name: String,
    level: String,
    words: String,
}

/// Returns a message if REDbot is missing. With `install`, tries to install it first.
pub(crate) fn missing(root: &Path, install: bool) -> Option<String> {
    python::package_missing(root, FOLDER, "redbot", &PACKAGES, install)
}

fn program(root: &Path) -> PathBuf {
    root.join(FOLDER).join("bin/redbot")
}

/// Checks each of [`CASES`] in each of [`WAYS`] with REDbot. Returns an error with all problems.
pub(crate) fn redbot(root: &Path) -> Result<()> {
    process::build_checked(root)?;
    let site = root.join(REPORTS).join("redbot-site");
    make_site(&site).map_err(|error| Error::doing(site.display(), error))?;
    let (mut wrong, mut excepted) = (Vec::new(), Vec::new());
    for way in WAYS {
        let log = root.join(REPORTS).join(format!("redbot-{}.log", way.name));
        let folder = site.display().to_string();
        let arguments = [&["serve", &folder, "--listen", "127.0.0.1:0"][..], way.options].concat();
        let started = serve(root, "auto", &arguments, &log)?;
        let (_running, port) = started.ok_or_else(|| Error::Failed("the engine `auto` is unavailable".into()))?;
        for case in CASES {
            let report = root.join(REPORTS).join(format!("redbot-{}{}.har", way.name, case.path.replace('/', "-")));
            let mut command = Command::new(program(root));
            command.args(["--output-format", "har", &format!("http://127.0.0.1:{port}{}", case.path)]);
            process::run_until(command.stdout(create(&report)?), Instant::now() + RUN)?;
            let said = read(&report)?;
            let found = judge(case, way, &said, &mut excepted);
            let words = if found.is_empty() { "nothing wrong".to_owned() } else { found.join("\n    ") };
            println!("{} {}: {words}", way.name, case.path);
            wrong.extend(found);
        }
    }
    let unused = ALLOWED.iter().filter(|(name, _)| !excepted.iter().any(|excepted| excepted == name));
    wrong.extend(unused.map(|(name, _)| format!("the exception {name} is not needed")));
    if wrong.is_empty() { Ok(()) } else { Err(Error::Failed(wrong.join("\n"))) }
}

/// Returns the problems in REDbot's report on a case, and adds the names of allowed notes to `excepted`.
fn judge(case: &Case, way: &Way, said: &str, excepted: &mut Vec<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    if !said.contains(&format!("\"status\": {},", case.status)) {
        wrong.push(format!("the status is not {}", case.status));
    }
    let notes = notes(said);
    let is_coded = case.coded == "*" || case.coded == way.name;
    for expected in case.notes.iter().chain(is_coded.then_some(&CODED)) {
        if !notes.iter().any(|note| note.name == *expected) {
            wrong.push(format!("the note {expected} is missing"));
        }
    }
    for note in notes.into_iter().filter(|note| matches!(&*note.level, "BAD" | "WARN")) {
        if ALLOWED.iter().any(|(name, _)| *name == note.name) {
            excepted.push(note.name);
        } else {
            wrong.push(format!("{} {}: {}", note.level, note.name, note.words));
        }
    }
    wrong
}

/// Returns the notes in REDbot's report, which has each JSON member on its own line.
fn notes(said: &str) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for line in said.lines() {
        let Some((name, value)) = line.trim().split_once(": \"") else { continue };
        let value = value.trim_end_matches(',').trim_end_matches('"').to_owned();
        match (name, notes.last_mut()) {
            ("\"note_id\"", _) => notes.push(Note { name: value, level: String::new(), words: String::new() }),
            ("\"level\"", Some(note)) => note.level = value,
            ("\"summary\"", Some(note)) => note.words = value,
            _ => {}
        }
    }
    notes
}

/// Creates files of several kinds and lengths, with a modification time in 2023.
fn make_site(site: &Path) -> std::io::Result<()> {
    fs::create_dir_all(site.join("folder"))?;
    let text: String = (0..400).map(|line| format!("Line {line}: a text for {} readers.\n", line * line)).collect();
    let page = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>A page</title>\n";
    let style = "body { color: black }\n".repeat(200);
    for (name, content) in [
        ("index.html", format!("{page}{}", "<p>A line of the page.</p>\n".repeat(200)).into_bytes()),
        ("text.txt", text.into_bytes()),
        ("small.txt", b"Hello, World!".to_vec()),
        ("style.css", style.clone().into_bytes()),
        ("style.css.gz", gzip(style.as_bytes())?),
        // This file is too large for the cache in memory, and its type is not compressed.
        ("large.bin", (0..300_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()),
        ("empty.txt", Vec::new()),
        ("folder/a b.txt", b"a file".to_vec()),
    ] {
        let path = site.join(name);
        fs::write(&path, content)?;
        let date = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        fs::File::options().write(true).open(&path)?.set_modified(date)?;
    }
    Ok(())
}

/// Compresses bytes with the program gzip.
fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(bytes)?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() { Ok(output.stdout) } else { Err(std::io::Error::other("gzip failed")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(notes: &[(&str, &str)]) -> String {
        let mut report = String::from("{\n  \"response\": {\n    \"status\": 200,\n  },\n");
        for (name, level) in notes {
            for (member, value) in
                [("note_id", *name), ("subject", "x: \"y\""), ("level", level), ("summary", "Words.")]
            {
                report.push_str(&format!("  \"{member}\": \"{value}\",\n"));
            }
        }
        report
    }

    #[test]
    fn what_is_bad_or_missing_is_told() {
        let case = Case { path: "/", status: 200, notes: &["INM_304"], coded: "compressed" };
        let good = ("INM_304", "GOOD");
        for (way, notes, expected, used) in [
            (0, &[good, ("ANY", "INFO")][..], &[][..], &[][..]),
            (0, &[good, (ALLOWED[0].0, "WARN")], &[], &[ALLOWED[0].0]),
            (0, &[good, ("OTHER", "WARN")], &["WARN OTHER: Words."], &[]),
            (0, &[good, ("OTHER", "BAD")], &["BAD OTHER: Words."], &[]),
            (0, &[], &["the note INM_304 is missing"], &[]),
            (1, &[good], &["the note CONNEG_GZIP_GOOD is missing"], &[]),
            (1, &[good, (CODED, "GOOD")], &[], &[]),
        ] {
            let mut excepted = Vec::new();
            assert_eq!(judge(&case, &WAYS[way], &report(notes), &mut excepted), expected, "{notes:?}");
            assert_eq!(excepted, used, "{notes:?}");
        }
        let other = Case { status: 404, ..case };
        assert_eq!(judge(&other, &WAYS[0], &report(&[good]), &mut Vec::new()), ["the status is not 404"]);
    }
}
