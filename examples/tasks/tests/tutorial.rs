//! docs/tutorial.md shows this program: each of its blocks of code is a part of a file here.

use std::fs;
use std::path::Path;

#[test]
fn each_block_of_the_tutorial_is_in_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/tutorial.md")).expect("the page");
    let names = [
        "schema.sql",
        "deploy/tasks.service",
        "src/error.rs",
        "src/files.rs",
        "src/lib.rs",
        "src/main.rs",
        "src/people.rs",
        "src/tasks.rs",
        "tests/service.rs",
    ];
    let files: Vec<String> = names.iter().map(|name| fs::read_to_string(root.join(name)).expect(name)).collect();
    let mut blocks = 0;
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, code) = block.split_once('\n').expect("a block of lines");
        if ["rust", "sql", "ini"].contains(&language) {
            blocks += 1;
            assert!(files.iter().any(|file| file.contains(code)), "in no file:\n{code}");
        }
    }
    assert!(blocks > 15, "{blocks} blocks");
}
