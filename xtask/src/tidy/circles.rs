//! The check `circles`: files of a crate that import one another, directly or through others.
//!
//! An import is the path of a `use`, or one in code that begins with `crate`, `self` or `super`, but not in tests. It leads to the
//! file that defines the first name behind the module; re-exports (`pub use`) are followed and are no imports themselves.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::source::words;
use super::tree::Tree;

/// The most files of a circle. More cannot be understood one after the other.
const MOST_FILES: usize = 4;

/// The path of a module from the crate's root.
type Module = Vec<String>;

/// The modules of a crate with their imports.
struct Crate {
    /// The files by module.
    files: BTreeMap<Module, String>,
    /// The names that a module re-exports, and where they lead.
    exports: BTreeMap<Module, BTreeMap<String, Module>>,
    /// The paths that a module imports, from the crate's root.
    imports: BTreeMap<Module, Vec<Module>>,
}

pub(super) fn circles(tree: &Tree) -> Vec<Finding> {
    let roots: BTreeSet<&str> =
        tree.sources.keys().filter_map(|path| path.split_once("/src/")).map(|(root, _)| root).collect();
    let large = roots.into_iter().flat_map(|root| Crate::read(tree, root).circles());
    large
        .map(|files| {
            let what = format!("a circle of imports has {} files: {}", files.len(), files.join(" "));
            Finding::new(&files[0], 1, what)
        })
        .collect()
}

impl Crate {
    fn read(tree: &Tree, root: &str) -> Crate {
        let mut found = Crate { files: BTreeMap::new(), exports: BTreeMap::new(), imports: BTreeMap::new() };
        let inside = tree.sources.iter().filter_map(|(path, source)| {
            let inner = path.strip_prefix(root)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
            Some((path, inner, source))
        });
        for (path, inner, source) in inside {
            let mut module: Module = inner.split('/').map(str::to_owned).collect();
            module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
            let (exports, imports) = paths(&module, &source.code, |at| tree.is_test(path, at));
            found.exports.insert(module.clone(), exports);
            found.imports.insert(module.clone(), imports);
            found.files.insert(module, path.clone());
        }
        found
    }

    /// Returns the module whose file defines what a path from the crate's root names, or `None` for a glob.
    fn resolve(&self, path: &[String], depth: usize) -> Option<&Module> {
        let length = (0..=path.len()).rev().find(|&length| self.files.contains_key(&path[..length]))?;
        let (module, _) = self.files.get_key_value(&path[..length])?;
        let rest = &path[length..];
        match rest.first().and_then(|name| self.exports.get(module)?.get(name)) {
            Some(to) if depth > 0 => self.resolve(&[to, &rest[1..]].concat(), depth - 1),
            _ => (rest.first().map(String::as_str) != Some("*")).then_some(module),
        }
    }

    /// Returns the files of each circle that has too many.
    fn circles(&self) -> Vec<Vec<String>> {
        let imports: BTreeMap<&Module, BTreeSet<&Module>> = self
            .imports
            .iter()
            .map(|(module, paths)| {
                let found = paths.iter().filter_map(|path| self.resolve(path, 8));
                (module, found.filter(|other| *other != module && !other.is_empty()).collect())
            })
            .collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            self.files.keys().map(|module| (module, reached(&imports, module))).collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            let circle: Vec<&Module> = others.iter().copied().filter(|other| reached[other].contains(module)).collect();
            if circle.len() > MOST_FILES {
                circles.insert(circle);
            }
        }
        circles
            .into_iter()
            .map(|circle| circle.into_iter().map(|module| self.files[module].clone()).collect())
            .collect()
    }
}

/// Returns the modules that a module imports, directly or through others.
fn reached<'m>(imports: &BTreeMap<&'m Module, BTreeSet<&'m Module>>, from: &'m Module) -> BTreeSet<&'m Module> {
    let (mut known, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(imports.get(module).into_iter().flatten().copied().filter(|other| known.insert(*other)));
    }
    known
}

/// Returns the names that a file of a module re-exports, and the paths that it imports.
fn paths(module: &Module, code: &str, is_test: impl Fn(usize) -> bool) -> (BTreeMap<String, Module>, Vec<Module>) {
    let (mut exports, mut imports) = (BTreeMap::new(), Vec::new());
    let mut uses = Vec::new();
    for at in words(code, "use").filter(|&at| !is_test(at)) {
        let Some(length) = code[at..].find(';') else { continue };
        uses.push(at..at + length);
        let before = code[..at].trim_end();
        let before = before.strip_suffix(')').map_or(before, |rest| rest.rsplit_once('(').map_or("", |(head, _)| head));
        let is_public = before.ends_with("pub");
        for (path, name) in expand(&code[at + "use".len()..at + length]) {
            let Some(path) = absolute(module, &path) else { continue };
            if is_public {
                exports.insert(name, path);
            } else {
                imports.push(path);
            }
        }
    }
    for start in ["crate", "self", "super"] {
        let is_path = |at: &usize| !is_test(*at) && !uses.iter().any(|range| range.contains(at));
        for at in words(code, start).filter(is_path) {
            let is_word = |byte: char| byte.is_alphanumeric() || byte == '_' || byte == ':';
            let path = code[at..].split(|byte| !is_word(byte)).next().unwrap_or_default();
            // `pub(in crate::name)` only limits who may see an item.
            if path.contains("::") && !code[..at].ends_with("::") && !code[..at].ends_with("(in ") {
                let parts: Vec<String> = path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
                imports.extend(absolute(module, &parts));
            }
        }
    }
    (exports, imports)
}

/// Returns a path from the crate's root. One that leads to another crate leads to the module itself, which imports nothing from
/// itself.
fn absolute(module: &Module, path: &[String]) -> Option<Module> {
    let supers = path.iter().take_while(|part| *part == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([module.get(..module.len().checked_sub(supers)?)?, &path[supers..]].concat()),
        _ => Some([module, path].concat()),
    }
}

/// Returns the paths of a `use`, each with the name that it brings.
fn expand(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let parts =
        |text: &str| text.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let Some((before, inside)) = tree.split_once('{') else {
        let (path, name) =
            tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim().to_owned())));
        let mut path: Vec<String> = parts(path);
        if path.len() > 1 {
            path.pop_if(|last| last == "self");
        }
        let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
        return if path.is_empty() { Vec::new() } else { vec![(path, name)] };
    };
    let inside = inside.trim_end().strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, byte) in inside.bytes().chain([b',']).enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => {
                found.extend(expand(&inside[start..at]));
                start = at + 1;
            }
            _ => {}
        }
    }
    let before: Vec<String> = parts(before);
    found
        .into_iter()
        .map(|(path, name)| {
            if path != ["self"] {
                return ([&before[..], &path].concat(), name);
            }
            let name = if name == "self" { before.last().cloned().unwrap_or_default() } else { name };
            (before.clone(), name)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let found = circles(&Tree::of(files));
        let found: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_circle_may_have_four_files() {
        let ring = [
            ("a/src/lib.rs", "mod b; mod c; mod d; mod e; pub use b::B;"),
            ("a/src/b.rs", "use crate::c::C;"),
            ("a/src/c.rs", "use super::d::{D, x::Y};"),
            ("a/src/d/mod.rs", "mod x; fn f() { crate::e::g() }"),
            ("a/src/e.rs", "use crate::b::B;"),
        ];
        check(&ring, &[]);
        let mut five = ring.to_vec();
        five[4] = ("a/src/e.rs", "use crate::f;");
        five.push(("a/src/f.rs", "use crate::{b::B};"));
        let what = "a circle of imports has 5 files: a/src/b.rs a/src/c.rs a/src/d/mod.rs a/src/e.rs a/src/f.rs";
        check(&five, &[what]);
        // Imports of tests do not count, and neither a re-export nor a limit on who may see an item is an import.
        five[5] = (
            "a/src/f.rs",
            "pub use crate::b::B; pub(in crate::b) fn f() {} #[cfg(test)] mod tests { use crate::b::B; }",
        );
        check(&five, &[]);
    }

    #[test]
    fn a_use_has_many_paths() {
        let shown = |tree: &str| {
            let found = expand(tree).into_iter().map(|(path, name)| format!("{} {name}", path.join("::")));
            found.collect::<Vec<_>>().join(", ")
        };
        for (tree, expected) in [
            ("crate::a::B", "crate::a::B B"),
            ("crate::a::B as C", "crate::a::B C"),
            ("self::{a, b::{self, C}, d::*}", "self::a a, self::b b, self::b::C C, self::d::* *"),
            ("super::super::a::{self as b, c}", "super::super::a b, super::super::a::c c"),
        ] {
            assert_eq!(shown(tree), expected, "{tree}");
        }
    }
}
