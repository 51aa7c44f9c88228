//! The checks of names, documents and whitespace.

use std::collections::BTreeSet;

use super::Finding;
use super::source::{close_of, is_word};
use super::tree::Tree;

/// The page that lists the limits with their reasons.
const LIMITS: &str = "docs/limits.md";

/// Names that do not describe the content of a file or folder.
const DRAWERS: &[&str] =
    &["common", "helper", "helpers", "legacy", "misc", "miscellaneous", "util", "utilities", "utils"];

/// The endings of the names of structs whose `pub` fields are limits.
const LIMIT_STRUCTS: &[&str] = &["Limits", "Timeouts"];

pub(super) fn drawer(tree: &Tree) -> Vec<Finding> {
    let stem =
        |path: &str| path.rsplit('/').next().unwrap_or(path).split('.').next().unwrap_or_default().to_lowercase();
    tree.paths
        .iter()
        .filter(|path| DRAWERS.contains(&stem(path).as_str()))
        .map(|path| Finding::new(path, 1, "has a name that does not describe its content"))
        .collect()
}

/// Checks that the page names each of [`defined_limits`], and that each name in the first column of the page's tables
/// is a word in the code.
pub(super) fn limits(tree: &Tree) -> Vec<Finding> {
    let defined = defined_limits(tree);
    let Some(page) = tree.texts.get(LIMITS) else {
        let missing = |(path, line, name): &(String, usize, String)| {
            Finding::new(path, *line, format!("`{name}` is not in {LIMITS}, which does not exist"))
        };
        return defined.iter().map(missing).collect();
    };
    let listed: BTreeSet<&str> = page.split('`').skip(1).step_by(2).map(last_name).collect();
    let mut found: Vec<Finding> = defined
        .iter()
        .filter(|(_, _, name)| !listed.contains(name.as_str()))
        .map(|(path, line, name)| Finding::new(path, *line, format!("`{name}` is not in {LIMITS}")))
        .collect();
    let python = tree.texts.iter().filter(|(path, _)| path.ends_with(".py")).map(|(_, text)| text.as_str());
    let rust = tree.sources.values().map(|source| source.code.as_str());
    let known: BTreeSet<&str> = rust.chain(python).flat_map(|code| code.split(|letter| !is_word(letter))).collect();
    for (index, line) in page.lines().enumerate() {
        let Some(cell) = line.strip_prefix('|').and_then(|row| row.split('|').next()) else { continue };
        let names = cell.split('`').skip(1).step_by(2).map(last_name);
        let missing = names.filter(|name| !name.is_empty() && name.chars().all(is_word) && !known.contains(name));
        found.extend(missing.map(|name| Finding::new(LIMITS, index + 1, format!("`{name}` is not in the code"))));
    }
    found
}

/// Returns the last part of a path or field access: `head_bytes` for `Limits::head_bytes` and `limits.head_bytes`.
fn last_name(path: &str) -> &str {
    path.rsplit(['.', ':']).next().unwrap_or(path)
}

/// Returns the file, line and name of the limits in the libraries, outside of tests: the `pub` fields of structs with a
/// name as in [`LIMIT_STRUCTS`], and the `pub const`s of `proto/src/limits.rs`.
fn defined_limits(tree: &Tree) -> Vec<(String, usize, String)> {
    let mut found = Vec::new();
    let libraries = ["proto/src/", "io/src/", "engine/src/", "highwire/src/"];
    for (path, source) in
        tree.sources.iter().filter(|(path, _)| libraries.iter().any(|library| path.starts_with(library)))
    {
        let code = &source.code;
        let name_at = |at: usize| code[at..].chars().take_while(|&letter| is_word(letter)).collect::<String>();
        let mut add = |at: usize, name: String| {
            if !tree.is_test(path, at) {
                found.push((path.clone(), source.line_of(at), name));
            }
        };
        for at in source.words("struct").map(|at| at + "struct ".len()).filter(|&at| at < code.len()) {
            if !LIMIT_STRUCTS.iter().any(|ending| name_at(at).ends_with(ending)) {
                continue;
            }
            let Some(open) = code[at..].find(['{', ';', '(']).map(|offset| at + offset) else { continue };
            if !code[open..].starts_with('{') {
                continue;
            }
            let end = close_of(code, open);
            for (field, _) in
                code[open..end].match_indices("pub ").map(|(offset, word)| (open + offset + word.len(), word))
            {
                let name = name_at(field);
                if code[field + name.len()..].starts_with(':') {
                    add(field, name);
                }
            }
        }
        if path == "proto/src/limits.rs" {
            for at in source.words("const").map(|at| at + "const ".len()).filter(|&at| at < code.len()) {
                if code[..at].ends_with("pub const ") && name_at(at) != "fn" {
                    add(at, name_at(at));
                }
            }
        }
    }
    found
}

pub(super) fn format(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in &tree.texts {
        for (index, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                found.push(Finding::new(path, index + 1, "whitespace at the end of the line"));
            }
            if path.ends_with(".rs") && line.contains('\t') {
                found.push(Finding::new(path, index + 1, "a tab"));
            }
        }
        let lines = text.lines().count();
        if !text.is_empty() && !text.ends_with('\n') {
            found.push(Finding::new(path, lines, "no line end at the end of the file"));
        } else if text.ends_with("\n\n") {
            found.push(Finding::new(path, lines, "empty lines at the end of the file"));
        }
    }
    found
}

pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, target) in link_targets(text) {
            let file = target.split(['#', '?']).next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            // A target with `::` is a Rust path, in a page that rustdoc includes. rustdoc checks such links.
            if elsewhere || file.is_empty() || file.contains("::") {
                continue;
            }
            match resolve(folder, file) {
                Some(place) if place.is_empty() || tree.paths.contains(&place) => {}
                _ => found.push(Finding::new(path, line, format!("links to `{target}`, which does not exist"))),
            }
        }
    }
    found
}

/// Returns the lines and targets of a page's links and images, outside code: `[text](target)` and `[label]: target`.
fn link_targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let mut rest = prose.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let target = after.split([')', ' ']).next().unwrap_or_default();
            targets.push((index + 1, target.trim_matches(['<', '>']).to_owned()));
            rest = after;
        }
        if let Some((label, target)) = prose.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
            && !label.starts_with('^')
            && !label.contains(']')
        {
            targets.push((index + 1, target.split(' ').next().unwrap_or_default().to_owned()));
        }
    }
    targets
}

/// Resolves a relative `target` in `folder` to a path from the root. Returns `None` if it leaves the root.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let start = if target.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Checks that ARCHITECTURE.md mentions every visible folder of the root.
pub(super) fn map(tree: &Tree) -> Vec<Finding> {
    const MAP: &str = "ARCHITECTURE.md";
    let folders =
        tree.paths.iter().filter_map(|path| path.split_once('/').map(|(folder, _)| folder)).collect::<BTreeSet<_>>();
    let text = tree.texts.get(MAP).map_or("", String::as_str);
    let shown = |folder: &str| text.contains(&format!("{folder}/")) || text.contains(&format!("`{folder}`"));
    folders
        .into_iter()
        .filter(|folder| !folder.starts_with('.') && !shown(folder))
        .map(|folder| Finding::new(MAP, 1, format!("does not mention `{folder}/`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(run: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)], expected: &[(&str, usize)]) {
        let found = run(&Tree::of(files));
        let places: Vec<(&str, usize)> = found.iter().map(|finding| (finding.path.as_str(), finding.line)).collect();
        assert_eq!(places, expected, "{files:?}");
    }

    #[test]
    fn drawers_are_found_as_files_and_as_folders() {
        check(
            drawer,
            &[("a/src/utils.rs", ""), ("a/tests/common/mod.rs", "")],
            &[("a/src/utils.rs", 1), ("a/tests/common", 1)],
        );
        check(drawer, &[("a/src/uncommon.rs", ""), ("a/src/utility_bill.rs", "")], &[]);
    }

    #[test]
    fn limits_and_their_page_agree() {
        let code = "pub const HEADS_MAX: usize = 1;\npub struct HeadLimits {\n    pub head_bytes: u32,\n    inner: u8,\n}\npub struct Other { pub free: u8 }\n";
        for (page, expected) in [
            ("| name |\n|---|\n| `HEADS_MAX` |\n| `HeadLimits::head_bytes` |\n", &[][..]),
            ("| name |\n|---|\n| `HEADS_MAX`, `HeadLimits.head_bytes` |\n", &[]),
            ("| `HEADS_MAX` |\n", &[("proto/src/limits.rs", 3)]),
            ("| `HEADS_MAX` `head_bytes` `--workers` |\n| `gone` | 1 |\n| 64 | `not_a_name` |\n", &[(LIMITS, 2)]),
        ] {
            check(limits, &[("proto/src/limits.rs", code), (LIMITS, page)], expected);
        }
        check(limits, &[("proto/src/limits.rs", code)], &[("proto/src/limits.rs", 3), ("proto/src/limits.rs", 1)]);
        check(
            limits,
            &[("engine/src/a.rs", "pub struct Timeouts<'a> { pub head: &'a u8 }"), (LIMITS, "x")],
            &[("engine/src/a.rs", 1)],
        );
        check(limits, &[("cli/src/a.rs", "pub struct Timeouts { pub head: u8 }"), (LIMITS, "x")], &[]);
        let page = "| `_a.py::MOST` |\n| `_a.py::LEAST` |\n";
        check(limits, &[("bindings/_a.py", "MOST = 1\n"), (LIMITS, page)], &[(LIMITS, 2)]);
    }

    #[test]
    fn whitespace_is_in_order() {
        for (path, text, expected) in [
            ("a.rs", "a\n", &[][..]),
            ("a.rs", "a \nb\t\n\tc\n", &[1, 2, 2, 3]),
            ("a.c", "\tc\n", &[]),
            ("a.md", "a\r\n", &[1]),
            ("a.md", "a\nb", &[2]),
            ("a.md", "a\n\n", &[2]),
            ("a.txt", "a ", &[]),
        ] {
            let expected: Vec<(&str, usize)> = expected.iter().map(|line| (path, *line)).collect();
            check(format, &[(path, text)], &expected);
        }
    }

    #[test]
    fn links_lead_somewhere() {
        for (text, expected) in [
            ("[a](limits.md) ![b](../README.md#top \"title\") [c](/docs/)", &[][..]),
            ("[a](https://example.org/x) [b](#here) [c](mailto:a@b.c) [d](crate::App)", &[]),
            ("see\n[a](gone.md) [b](../../out.md)", &[2, 2]),
            ("[a]: gone.md\n[^1]: gone.md\n[b]: <limits.md>", &[1, 3]),
            ("`[a](gone.md)`\n```\n[a](gone.md)\n```", &[]),
        ] {
            let expected: Vec<(&str, usize)> = expected.iter().map(|line| ("docs/a.md", *line)).collect();
            check(links, &[("docs/a.md", text), ("docs/limits.md", ""), ("README.md", "")], &expected);
        }
    }

    #[test]
    fn the_map_shows_every_folder() {
        let map_text = "`proto/` and `io`";
        check(map, &[("ARCHITECTURE.md", map_text), ("proto/a.rs", ""), ("io/a.rs", ""), (".ci/run", "")], &[]);
        check(map, &[("ARCHITECTURE.md", map_text), ("cli/a.rs", "")], &[("ARCHITECTURE.md", 1)]);
    }
}
