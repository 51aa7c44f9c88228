//! The checks of Rust code and of the crates' dependencies.

use std::ops::Range;

use super::Finding;
use super::source::{Source, is_word, words};
use super::tree::Tree;

/// The starts of the paths in which `unsafe` is allowed, for system calls, vector instructions and foreign callers.
const UNSAFE_PLACES: &[&str] = &["io/", "proto/src/scan/", "bindings/"];

/// The folder of the fuzz targets, which use a macro of libFuzzer and are never shipped. Their `unsafe` is not checked.
const NOT_SHIPPED: &str = "fuzz/";

/// Crates of this project, each with the crates of this project on which it may depend. A crate that is not listed may
/// depend on any.
const LAYERS: &[(&str, &[&str])] = &[
    ("proto", &["testkit"]),
    ("io", &[]),
    ("engine", &["proto", "io", "testkit"]),
    ("highwire", &["proto", "io", "engine", "testkit"]),
];

/// Folders of code whose values each belong to one thread. This code must not use `Arc`.
const OF_ONE_THREAD: &[&str] = &["engine/src/connection/", "engine/src/exchange/"];

/// Code that requests pass through. It must not use locks. Outside of [`OF_ONE_THREAD`] it may use `Arc`, for values
/// that each worker gets when it starts.
const WITHOUT_LOCKS: &[&str] = &[
    "engine/src/connection/",
    "engine/src/exchange/",
    "engine/src/worker/",
    "engine/src/runtime/context.rs",
    "engine/src/message/date.rs",
    "engine/src/runtime/deadline.rs",
    "engine/src/secure.rs",
    "highwire/src/app/dispatch.rs",
    "highwire/src/message/request.rs",
    "highwire/src/router/",
];

/// The largest permitted number of lines of code in a file. Unit tests, comments and empty lines do not count.
const LINES_OF_CODE_MAX: usize = 500;

/// The largest permitted number of lines of code between a SAFETY comment and its `unsafe`, which may be in the middle
/// of a statement.
const LINES_BETWEEN_MAX: usize = 3;

pub(super) fn unsafe_place(tree: &Tree) -> Vec<Finding> {
    let elsewhere =
        |path: &str| !path.starts_with(NOT_SHIPPED) && !UNSAFE_PLACES.iter().any(|place| path.starts_with(place));
    each(tree, elsewhere, |_, source| {
        source.words("unsafe").map(|at| (source.line_of(at), "`unsafe` outside its folders".to_owned())).collect()
    })
}

pub(super) fn unsafe_reason(tree: &Tree) -> Vec<Finding> {
    each(
        tree,
        |path| !path.starts_with(NOT_SHIPPED),
        |_, source| {
            let trait_impls = source.trait_impls();
            // An `unsafe fn` in an implementation of a trait needs no reason, because the trait documents the contract.
            let inherits = |at: usize| trait_impls.iter().any(|range| range.contains(&at));
            source
                .words("unsafe")
                .filter_map(|at| Some((at, needs_reason(&source.code[at + "unsafe".len()..])?)))
                .filter(|&(at, what)| what != "fn" || !inherits(at))
                .filter(|&(at, _)| !has_reason(source, source.line_of(at)))
                .map(|(at, what)| (source.line_of(at), format!("`unsafe` {what} without a SAFETY comment")))
                .collect()
        },
    )
}

/// Returns the kind of code after `unsafe`, or `None` if it needs no SAFETY comment. For example, a type
/// (`unsafe fn(…)`) and an attribute need none.
fn needs_reason(after: &str) -> Option<&'static str> {
    let after = after.trim_start();
    let mut rest = after;
    if let Some(tail) = rest.strip_prefix("extern") {
        rest = tail.trim_start();
        if let Some(abi) = rest.strip_prefix('"') {
            rest = abi.split_once('"').map_or("", |(_, tail)| tail).trim_start();
        }
        if rest.starts_with('{') {
            return Some("extern block");
        }
    }
    if let Some(tail) = rest.strip_prefix("fn") {
        return tail.trim_start().starts_with(is_word).then_some("fn");
    }
    [("impl", "impl"), ("trait", "trait"), ("{", "block")]
        .iter()
        .find(|(start, _)| rest.starts_with(start))
        .map(|(_, what)| *what)
}

/// Returns true if there is a SAFETY comment on the line or above it. Only comments, attributes and up to
/// [`LINES_BETWEEN_MAX`] lines of code may be between the two.
fn has_reason(source: &Source, line: usize) -> bool {
    let raw: Vec<&str> = source.raw.lines().collect();
    let argued = |text: &str| text.contains("SAFETY") || text.contains("# Safety");
    if argued(raw[line - 1]) {
        return true;
    }
    let mut code_between = 0;
    for text in raw[..line - 1].iter().rev() {
        if argued(text) {
            return true;
        }
        let text = text.trim_start();
        if text.is_empty() {
            return false;
        }
        if !(text.starts_with("//") || text.starts_with("#[") || text.starts_with('*')) {
            code_between += 1;
        }
        if code_between > LINES_BETWEEN_MAX {
            return false;
        }
    }
    false
}

/// Returns the offsets at which a path begins with the crate's name: `name::`, `::name::`, `use name;`, `use name as`.
fn names_crate<'a>(source: &'a Source, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    source.words(name).filter(move |&at| {
        let (before, after) = (&source.code[..at], &source.code[at + name.len()..]);
        let leads = match before.strip_suffix("::") {
            // In `std::io`, `io` is no crate; in `::io` it is.
            Some(path) => !path.ends_with(|letter: char| is_word(letter) || letter == '>'),
            None => !within_use_list(before),
        };
        leads
            && (after.starts_with("::")
                || (before.ends_with("use ") && (after.starts_with(';') || after.starts_with(" as "))))
    })
}

/// Returns true if the code ends inside the braces of `use path::{…}`, in which a name is relative to that path.
fn within_use_list(before: &str) -> bool {
    let statement = &before[before.rfind(';').map_or(0, |at| at + 1)..];
    let Some(list) = words(statement, "use").last().and_then(|at| statement[at..].split_once("::{")) else {
        return false;
    };
    list.1.matches('{').count() + 1 > list.1.matches('}').count()
}

pub(super) fn layers(tree: &Tree) -> Vec<Finding> {
    let ours = ["proto", "io", "engine", "highwire", "testkit", "sim", "cli", "xtask"];
    LAYERS
        .iter()
        .flat_map(|&(layer, below)| {
            let manifest = format!("{layer}/Cargo.toml");
            let found = tree.texts.get(&manifest).map(|text| dependencies(text)).into_iter().flatten();
            found.filter_map(move |(line, name)| {
                let name = name.strip_prefix("highwire-").unwrap_or(name);
                let is_above = ours.contains(&name) && !below.contains(&name);
                is_above.then(|| Finding::new(&manifest, line, format!("depends on `{name}`")))
            })
        })
        .collect()
}

/// Returns the lines and names of a manifest's dependencies of every kind.
fn dependencies(manifest: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut within = false;
    manifest.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            within = section.ends_with("dependencies");
            return section.rsplit_once("dependencies.").map(|(_, name)| (index + 1, name));
        }
        let name = line.split(['=', '.', ' ']).next()?;
        (within && !name.is_empty() && !name.starts_with('#')).then_some((index + 1, name))
    })
}

pub(super) fn proto_alone(tree: &Tree) -> Vec<Finding> {
    let optional = tree.under_cfg(|attribute| attribute.contains("test") || attribute.contains("feature = \"std\""));
    let is_optional = |path: &str, at: usize| {
        optional.get(path).is_some_and(|ranges: &Vec<Range<usize>>| ranges.iter().any(|range| range.contains(&at)))
    };
    let mut found = each(
        tree,
        |path| path.starts_with("proto/src/"),
        |path, source| {
            names_crate(source, "std")
                .filter(|&at| !is_optional(path, at) && !tree.is_test(path, at))
                .map(|at| (source.line_of(at), "uses `std` without the feature `std`".to_owned()))
                .collect()
        },
    );
    if let Some(library) = tree.sources.get("proto/src/lib.rs")
        && !library.code.contains("#![no_std]")
    {
        found.push(Finding::new("proto/src/lib.rs", 1, "`#![no_std]` is missing"));
    }
    found
}

pub(super) fn no_lock(tree: &Tree) -> Vec<Finding> {
    sharing(tree, WITHOUT_LOCKS, &["Mutex", "RwLock", "Condvar"])
}

pub(super) fn no_arc(tree: &Tree) -> Vec<Finding> {
    sharing(tree, OF_ONE_THREAD, &["Arc"])
}

/// Finds uses of these types with parameters, and of their functions, outside of tests. An import alone is allowed.
fn sharing(tree: &Tree, folders: &[&str], types: &[&str]) -> Vec<Finding> {
    each(
        tree,
        |path| folders.iter().any(|folder| path.starts_with(folder)),
        |path, source| {
            types
                .iter()
                .flat_map(|name| source.words(name).map(move |at| (at, *name)))
                .filter(|&(at, name)| {
                    let after = &source.code[at + name.len()..];
                    !tree.is_test(path, at) && (after.starts_with('<') || after.starts_with("::"))
                })
                .map(|(at, name)| (source.line_of(at), format!("`{name}` is not allowed here")))
                .collect()
        },
    )
}

pub(super) fn opening(tree: &Tree) -> Vec<Finding> {
    each(
        tree,
        |_| true,
        |_, source| {
            if source.raw.starts_with("//!") { Vec::new() } else { vec![(1, "does not begin with `//!`".to_owned())] }
        },
    )
}

pub(super) fn length(tree: &Tree) -> Vec<Finding> {
    each(
        tree,
        |_| true,
        |path, source| {
            let inside_tests =
                |index: usize| !path.contains("/tests/") && tree.is_test(path, offset_of_line(source, index));
            let lines =
                source.code_lines().filter(|(line, text)| !text.trim().is_empty() && !inside_tests(*line)).count();
            if lines > LINES_OF_CODE_MAX { vec![(1, format!("{lines} lines of code"))] } else { Vec::new() }
        },
    )
}

fn offset_of_line(source: &Source, line: usize) -> usize {
    source.code.match_indices('\n').nth(line.wrapping_sub(2)).map_or(0, |(at, _)| at + 1)
}

pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    const MARKS: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];
    each(
        tree,
        |_| true,
        |_, source| {
            let mut found = Vec::new();
            for (line, text) in source.code_lines() {
                for mark in MARKS {
                    let whole =
                        |at: usize| !text[..at].ends_with(is_word) && !text[at + mark.len()..].starts_with(is_word);
                    if text.match_indices(mark).any(|(at, _)| whole(at)) {
                        found.push((line, format!("`{mark}{}`", if mark.starts_with('#') { "]" } else { "" })));
                    }
                }
            }
            found
        },
    )
}

pub(super) fn sleeping_test(tree: &Tree) -> Vec<Finding> {
    each(
        tree,
        |_| true,
        |path, source| {
            source
                .words("sleep")
                .filter(|&at| tree.is_test(path, at) && source.code[..at].ends_with("thread::"))
                .map(|at| (source.line_of(at), "`thread::sleep` in a test".to_owned()))
                .collect()
        },
    )
}

/// Runs a check on every Rust file for which `wanted` returns true.
fn each(
    tree: &Tree,
    wanted: impl Fn(&str) -> bool,
    check: impl Fn(&str, &Source) -> Vec<(usize, String)>,
) -> Vec<Finding> {
    tree.sources
        .iter()
        .filter(|(path, _)| wanted(path))
        .flat_map(|(path, source)| check(path, source).into_iter().map(|(line, what)| Finding::new(path, line, what)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a check on one file and compares the lines of its findings.
    fn check(run: fn(&Tree) -> Vec<Finding>, path: &str, text: &str, expected: &[usize]) {
        let lines: Vec<usize> = run(&Tree::of(&[(path, text)])).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, expected, "{path}: {text}");
    }

    #[test]
    fn unsafe_has_its_places() {
        for (path, text, expected) in [
            ("io/src/uring/ring.rs", "unsafe { f() }", &[][..]),
            ("proto/src/scan/x86.rs", "unsafe fn f() {}", &[]),
            ("proto/src/ws/mask.rs", "unsafe {}", &[1]),
            ("fuzz/fuzz_targets/a.rs", "unsafe {}", &[]),
            ("proto/src/h1/parse.rs", "fn f() {\n    unsafe { g() }\n}", &[2]),
            ("proto/src/h1/parse.rs", "#![forbid(unsafe_code)] // unsafe\nfn f() { g(\"unsafe\") }", &[]),
            ("highwire/tests/allocations.rs", "unsafe impl A for B {}", &[1]),
        ] {
            check(unsafe_place, path, text, expected);
        }
    }

    #[test]
    fn unsafe_has_its_argument() {
        for (text, expected) in [
            ("// SAFETY: so.\nunsafe { f() }", &[][..]),
            ("let x = unsafe { f() }; // SAFETY: so.", &[]),
            ("// SAFETY: so, and\n// further.\n#[inline]\nunsafe impl Send for A {}", &[]),
            ("/// Does.\n///\n/// # Safety\n///\n/// So.\npub unsafe fn f() {}", &[]),
            ("// SAFETY: so.\nlet x =\n    f(\n        unsafe { g() });", &[]),
            ("unsafe { f() }", &[1]),
            ("// SAFETY: so.\n\nunsafe { f() }", &[3]),
            ("// SAFETY: so.\na;\nb;\nc;\nd;\nunsafe { f() }", &[6]),
            ("pub unsafe fn f() {}", &[1]),
            ("unsafe extern \"C\" { fn f(); }", &[1]),
            ("unsafe extern \"C\" fn f() {}", &[1]),
            ("type F = unsafe extern \"C\" fn(i32);\ntype G = unsafe fn();", &[]),
            ("#[unsafe(no_mangle)]\npub extern \"C\" fn f() {}", &[]),
            ("unsafe trait T {}", &[1]),
            ("impl T for A {\n    unsafe fn f() {\n        unsafe { g() }\n    }\n}", &[3]),
            ("impl<F: for<'a> Fn(&'a u8)> A<F> {\n    unsafe fn f() {}\n}", &[2]),
        ] {
            check(unsafe_reason, "io/src/a.rs", text, expected);
        }
    }

    #[test]
    fn crates_depend_on_those_below_them() {
        for (path, text, expected) in [
            ("io", "[dependencies]\nlibc.workspace = true\nmio = { version = \"1\" }\n[features]\nproto = []", &[][..]),
            ("io", "[dependencies]\nproto.workspace = true", &[2]),
            ("io", "[dev-dependencies]\nhighwire-proto = \"0.1\"", &[2]),
            ("proto", "[target.'cfg(unix)'.dependencies.highwire]\npath = \"../highwire\"", &[1]),
            ("proto", "[dev-dependencies]\ntestkit.workspace = true", &[]),
            ("engine", "[dependencies]\nproto.workspace = true\nio.workspace = true", &[]),
            ("engine", "[dev-dependencies]\nhighwire.workspace = true", &[2]),
            ("highwire", "[dependencies]\nengine.workspace = true\n[dev-dependencies]\nsim.workspace = true", &[4]),
            ("cli", "[dependencies]\nhighwire.workspace = true", &[]),
        ] {
            check(layers, &format!("{path}/Cargo.toml"), text, expected);
        }
    }

    #[test]
    fn proto_does_without_std() {
        for (text, expected) in [
            ("#![no_std]\nuse core::fmt;", &[][..]),
            ("use core::fmt;", &[1]),
            ("#![no_std]\nuse std::fmt;", &[2]),
            (
                "#![no_std]\n#[cfg(feature = \"std\")]\nfn f() -> bool {\n    std::is_x86_feature_detected!(\"avx2\")\n}",
                &[],
            ),
            ("#![no_std]\n#[cfg(feature = \"std\")]\nextern crate std;\nfn f() { std::process::exit(1) }", &[4]),
            ("#![no_std]\n#[cfg(test)]\nmod tests { use std::vec; }", &[]),
            ("#![no_std] // std::fmt", &[]),
        ] {
            check(proto_alone, "proto/src/lib.rs", text, expected);
        }
    }

    #[test]
    fn a_module_is_as_optional_as_its_declaration() {
        for (attribute, expected) in
            [("", 1), ("#[cfg(feature = \"std\")]", 0), ("#[cfg(all(unix, feature = \"std\"))]", 0)]
        {
            let parent = format!("#![no_std]\n{attribute} mod detect;");
            let tree = Tree::of(&[("proto/src/lib.rs", &parent), ("proto/src/detect.rs", "use std::sync;")]);
            assert_eq!(proto_alone(&tree).len(), expected, "{attribute}");
        }
    }

    #[test]
    fn code_of_one_thread_shares_nothing() {
        for (run, path, text, expected) in [
            (
                no_arc as fn(&Tree) -> Vec<Finding>,
                "engine/src/connection/mod.rs",
                "struct A { b: Arc<u8>, c: Mutex<u8> }",
                &[1][..],
            ),
            (
                no_lock,
                "engine/src/connection/mod.rs",
                "struct A {\n    b: Arc<u8>,\n    c: std::sync::Mutex<u8>,\n}",
                &[3],
            ),
            (no_arc, "engine/src/connection/mod.rs", "let a = Arc::clone(&b);", &[1]),
            (no_arc, "engine/src/connection/mod.rs", "use std::sync::Arc;\nstruct Archive<T>(T);", &[]),
            (no_arc, "engine/src/connection/mod.rs", "#[cfg(test)]\nmod tests { type A = Arc<u8>; }", &[]),
            (no_arc, "engine/src/worker/mod.rs", "type A = Arc<u8>;", &[]),
            (no_lock, "engine/src/worker/mod.rs", "type A = Mutex<u8>;", &[1]),
            (no_lock, "engine/src/runtime/pool.rs", "type A = Mutex<u8>;", &[]),
        ] {
            check(run, path, text, expected);
        }
    }

    #[test]
    fn files_open_with_their_purpose_and_stay_short() {
        check(opening, "a.rs", "//! Why.\n", &[]);
        check(opening, "a.rs", "// Why.\n", &[1]);
        let long = "a();\n".repeat(LINES_OF_CODE_MAX);
        check(length, "a.rs", &format!("// one more\n\n{long}"), &[]);
        check(length, "a.rs", &format!("a();\n{long}"), &[1]);
        check(length, "a.rs", &format!("a();\n#[cfg(test)]\nmod tests {{\n{long}}}\n"), &[]);
        check(length, "a/tests/b.rs", &format!("a();\n{long}"), &[1]);
    }

    #[test]
    fn nothing_is_left_unfinished() {
        for (text, expected) in [
            ("fn f() {\n    todo!()\n}", &[2][..]),
            ("unimplemented!(\"x\");\nlet a = dbg!(b);", &[1, 2]),
            ("#[test]\n#[ignore = \"slow\"]\nfn f() {}", &[2]),
            ("#[test]\n#[ignore]\nfn f() {}", &[2]),
            ("// todo!\nf(\"dbg!\"); my_todo!();", &[]),
        ] {
            check(unfinished, "a.rs", text, expected);
        }
    }

    #[test]
    fn tests_do_not_sleep() {
        for (path, text, expected) in [
            ("a/tests/b.rs", "fn f() { std::thread::sleep(d); }", &[1][..]),
            ("a/src/b.rs", "fn f() { thread::sleep(d); }", &[]),
            ("a/src/b.rs", "#[cfg(test)]\nmod tests {\n    use std::thread::sleep;\n}", &[3]),
            ("a/tests/b.rs", "fn f() { highwire::time::sleep(d); }", &[]),
        ] {
            check(sleeping_test, path, text, expected);
        }
    }
}
