//! `cargo xtask conformance openapi`: does the OpenAPI document of an app say what the app does?
//!
//! openapi-spec-validator reads the document of the example `books`. schemathesis then makes requests of it, valid and not, and checks
//! that the running example answers as its document says: statuses, media types, schemas, security. `conformance/openapi` has its settings.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::conformance::{REPORTS, RUN, create, start};
use crate::{Error, Result, process, python};

const PACKAGES: [&str; 2] = ["openapi-spec-validator==0.9.0", "schemathesis==4.32.5"];

const FOLDER: &str = "target/tools/schemathesis-4.32.5";

const PROGRAM: &str = "target/debug/examples/books";

const SETTINGS: &str = "conformance/openapi";

/// What schemathesis prints if it has found nothing.
const PASSED: &str = "No issues found";

/// Returns a message if schemathesis is missing. With `install`, tries to install it first.
pub(crate) fn missing(root: &Path, install: bool) -> Option<String> {
    python::package_missing(root, FOLDER, "schemathesis", &PACKAGES, install)
}

/// Validates the document of the example `books`, and tests the example against it.
pub(crate) fn openapi(root: &Path) -> Result<()> {
    // With the features of the whole workspace, as the step `tests` has built it.
    let mut build = Command::new("cargo");
    build.current_dir(root).args([
        "build",
        "--workspace",
        "--all-features",
        "--example",
        "books",
        "--target-dir",
        "target",
    ]);
    process::run_shown(&mut build)?;
    let reports = root.join(REPORTS);
    std::fs::create_dir_all(&reports).map_err(|error| Error::doing(reports.display(), error))?;
    let tools = root.join(FOLDER).join("bin");
    let document = reports.join("books.json");
    process::run_until(
        Command::new(root.join(PROGRAM)).arg("document").stdout(create(&document)?),
        Instant::now() + RUN,
    )?;
    process::run_shown(Command::new(tools.join("openapi-spec-validator")).arg(&document))?;
    let (_running, port) = start(root, PROGRAM, &["127.0.0.1:0"], &reports.join("books.log"))?;
    let source = format!("http://127.0.0.1:{port}/openapi.json");
    let report = reports.join("schemathesis.log");
    let mut schemathesis = Command::new(tools.join("schemathesis"));
    // The hooks are a module beside the settings. Its own files go beside the reports.
    let settings = root.join(SETTINGS);
    schemathesis.current_dir(&reports).env("PYTHONPATH", &settings).env("PYTHONDONTWRITEBYTECODE", "1");
    schemathesis.arg("--config-file").arg(settings.join("schemathesis.toml"));
    schemathesis.args(["run", &source, "--checks", "all", "--no-color"]).stdout(create(&report)?);
    let ended = process::run_until(&mut schemathesis, Instant::now() + RUN)?;
    let said = crate::conformance::read(&report)?;
    if ended.is_some_and(|status| status.success()) && said.contains(PASSED) {
        println!(
            "{}",
            said.lines()
                .filter(|line| line.contains("generated") || line.contains(PASSED))
                .collect::<Vec<_>>()
                .join("\n")
        );
        return Ok(());
    }
    Err(Error::Failed(said))
}
