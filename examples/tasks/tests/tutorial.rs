//! docs/tutorial.md shows this program: each of its blocks of code is a whole file here, and all of these files are shown.

use std::fs;
use std::path::Path;

const FILES: [&str; 9] = [
    "schema.sql",
    "src/error.rs",
    "src/people.rs",
    "src/tasks.rs",
    "src/files.rs",
    "src/lib.rs",
    "src/main.rs",
    "tests/login.rs",
    "deploy/tasks.service",
];

#[test]
fn the_tutorial_shows_the_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/tutorial.md")).expect("the page");
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let shown: Vec<&str> =
        blocks.filter(|(language, _)| ["rust", "sql", "ini"].contains(language)).map(|(_, code)| code).collect();
    assert_eq!(shown.len(), FILES.len());
    for (shown, name) in shown.iter().zip(FILES) {
        let file = fs::read_to_string(root.join(name)).expect(name);
        assert_eq!(*shown, file.trim_end(), "{name}");
    }
}
