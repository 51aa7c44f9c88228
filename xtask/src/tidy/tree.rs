//! The project's files, read once. Tests build a tree from a few lines of text.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use super::source::Source;
use crate::{Error, Result};

/// The extensions of files that are checked. Corpora and recordings are data, which may have any format.
const TEXT: &[&str] = &["rs", "md", "toml", "c", "h", "py", "sh", "rb", "java", "cs", "yml"];

/// The project's files that .gitignore does not exclude, by their path from the root, with `/` as separator.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The texts of all checked files.
    pub(super) texts: BTreeMap<String, String>,
    /// The Rust files among them, prepared for the checks.
    pub(super) sources: BTreeMap<String, Source>,
    /// All files and folders.
    pub(super) paths: BTreeSet<String>,
    /// Byte ranges of code that is compiled for tests only, by file.
    tests: BTreeMap<String, Vec<Range<usize>>>,
}

impl Tree {
    /// Reads the project without the files that the root's .gitignore excludes. This also works in a copy without git.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let patterns = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let ignored = Ignored::new(&patterns);
        let mut files = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(root.join(&folder)).map_err(|error| Error::doing(&folder, error))?;
            for entry in entries {
                let entry = entry.map_err(|error| Error::doing(&folder, error))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                if name == ".git" || ignored.holds(&path) {
                    continue;
                }
                // A symbolic link counts as a file, so the walk does not enter a folder through a link.
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(path);
                } else {
                    let bytes =
                        if is_text(&path) { std::fs::read(entry.path()).unwrap_or_default() } else { Vec::new() };
                    files.push((path, String::from_utf8_lossy(&bytes).into_owned()));
                }
            }
        }
        Ok(Self::new(files))
    }

    pub(super) fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            for (at, _) in path.match_indices('/') {
                tree.paths.insert(path[..at].to_owned());
            }
            tree.paths.insert(path.clone());
            if path.ends_with(".rs") {
                tree.sources.insert(path.clone(), Source::new(&text));
            }
            if is_text(&path) {
                tree.texts.insert(path, text);
            }
        }
        // Code of the feature `testing` is no test.
        tree.tests = tree.under_cfg(|attribute| attribute.replace("\"testing\"", "").contains("test"));
        for (path, source) in &tree.sources {
            if path.split('/').any(|part| part == "tests" || part == "benches") {
                let whole = 0..source.code.len() + 1;
                tree.tests.insert(path.clone(), vec![whole]);
            }
        }
        tree
    }

    /// Returns, for every file, the ranges that are compiled only under a `cfg` for whose text `wanted` returns true.
    /// The condition of a module's declaration also applies to the module's own file and to the modules below it.
    pub(super) fn under_cfg(&self, wanted: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<Range<usize>>> {
        let mut ranges: BTreeMap<String, Vec<Range<usize>>> =
            self.sources.iter().map(|(path, source)| (path.clone(), source.under_cfg(&wanted))).collect();
        let mut todo: Vec<String> = self.sources.keys().cloned().collect();
        while let Some(path) = todo.pop() {
            let folder = match path.rsplit_once('/') {
                Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder.to_owned(),
                _ => path.trim_end_matches(".rs").to_owned(),
            };
            for module in self.sources[&path].modules_within(&ranges[&path]) {
                for child in [format!("{folder}/{module}.rs"), format!("{folder}/{module}/mod.rs")] {
                    let Some(source) = self.sources.get(&child) else { continue };
                    let whole = 0..source.code.len() + 1;
                    let known = ranges.entry(child.clone()).or_default();
                    if !known.contains(&whole) {
                        known.push(whole);
                        todo.push(child);
                    }
                }
            }
        }
        ranges
    }

    /// Returns true if the code at an offset is compiled for tests only.
    pub(super) fn is_test(&self, path: &str, offset: usize) -> bool {
        self.tests.get(path).is_some_and(|ranges| ranges.iter().any(|range| range.contains(&offset)))
    }
}

#[cfg(test)]
impl Tree {
    /// Builds a tree from paths and texts.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self::new(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
    }
}

fn is_text(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, ending)| TEXT.contains(&ending))
}

/// The patterns of a .gitignore; supports only `/path`, `name`, `*.ending`.
struct Ignored<'a> {
    patterns: Vec<&'a str>,
}

impl<'a> Ignored<'a> {
    fn new(text: &'a str) -> Self {
        let patterns = text
            .lines()
            .map(|line| line.trim().trim_end_matches('/'))
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self { patterns: patterns.collect() }
    }

    fn holds(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.patterns.iter().any(|pattern| match (pattern.strip_prefix('/'), pattern.strip_prefix('*')) {
            (Some(whole), _) => whole == path,
            (None, Some(ending)) => name.ends_with(ending),
            // A pattern with a slash inside is also relative to the root.
            (None, None) => *pattern == name || *pattern == path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_paths_follow_gitignore() {
        let ignored = Ignored::new("# built\n/target\n/bench/bin\n*.profraw\n.venv/\n");
        for (path, expected) in [
            ("target", true),
            ("io/target", false),
            ("bench/bin", true),
            ("bench/bins", false),
            ("a/b.profraw", true),
            ("bindings/.venv", true),
            ("src/main.rs", false),
        ] {
            assert_eq!(ignored.holds(path), expected, "{path}");
        }
    }

    #[test]
    fn tests_are_told_from_the_rest() {
        let tree = Tree::of(&[
            ("a/src/lib.rs", "fn a() {}\n#[cfg(test)]\nmod suite;\n#[cfg(test)]\nmod tests { fn b() {} }\n"),
            ("a/src/suite.rs", "mod deep;"),
            ("a/src/suite/deep.rs", "fn c() {}"),
            ("a/tests/d.rs", "fn d() {}"),
        ]);
        for (path, word, expected) in [
            ("a/src/lib.rs", "a()", false),
            ("a/src/lib.rs", "b()", true),
            ("a/src/suite.rs", "mod", true),
            ("a/src/suite/deep.rs", "c()", true),
            ("a/tests/d.rs", "d()", true),
        ] {
            let offset = tree.texts[path].find(word).expect("the sample contains the word");
            assert_eq!(tree.is_test(path, offset), expected, "{path}: {word}");
        }
    }
}
