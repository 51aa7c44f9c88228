//! The steps of `cargo xtask test` that install the Python package and run its tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{Error, Result, process};

/// The versions of Python that the package supports, the newest first.
const VERSIONS: [&str; 4] = ["3.14", "3.13", "3.12", "3.11"];

/// The longest time of an installation, which builds the native module.
const INSTALL: Duration = Duration::from_secs(900);

/// The longest time of the tests with one version.
const TESTS: Duration = Duration::from_secs(600);

const PACKAGE: &str = "bindings/python";

const REQUIREMENTS: &str = "bindings/python/tests/requirements.txt";

/// Returns an interpreter of a version, from `PATH` or from pyenv.
fn interpreter(version: &str) -> Option<PathBuf> {
    let mut candidates = vec![PathBuf::from(format!("python{version}")), PathBuf::from("python3")];
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let installed =
        pyenv.and_then(|root| std::fs::read_dir(root.join("versions")).ok()).into_iter().flatten().flatten();
    candidates.extend(installed.map(|entry| entry.path().join("bin/python3")));
    candidates.into_iter().find(|program| {
        let code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])";
        process::output(Command::new(program).args(["-c", code])).is_ok_and(|output| output.trim() == version)
    })
}

/// Returns a message if no interpreter of a supported version is here.
pub(crate) fn missing() -> Option<String> {
    let oldest = VERSIONS[VERSIONS.len() - 1];
    VERSIONS
        .into_iter()
        .all(|version| interpreter(version).is_none())
        .then(|| format!("no Python of version {oldest} or later with venv (`apt-get install python3-venv`)"))
}

/// Returns a message if a program of packages from PyPI is missing in `folder`, a virtual environment. With `install`, tries to
/// install the packages first.
pub(crate) fn package_missing(
    root: &Path,
    folder: &str,
    program: &str,
    packages: &[&str],
    install: bool,
) -> Option<String> {
    let is_missing = || !root.join(folder).join("bin").join(program).is_file();
    if is_missing()
        && install
        && let Some(python) = process::find_program("python3")
    {
        println!("installing {program}");
        let until = Instant::now() + INSTALL;
        let mut venv = Command::new(python);
        venv.current_dir(root).args(["-m", "venv", folder]);
        let mut pip = Command::new(root.join(folder).join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
        for command in [&mut venv, &mut pip] {
            if let Err(error) = process::run_until(command, until) {
                println!("{}", error.reason());
            }
        }
    }
    let how = format!("python3 -m venv {folder} && {folder}/bin/pip install {}", packages.join(" "));
    is_missing().then(|| format!("{program} is missing (`{how}`)"))
}

/// Installs the package for the newest Python that is here, and runs its tests.
///
/// # Errors
/// Returns an error if the installation or a test fails.
pub(crate) fn newest(root: &Path) -> Result<()> {
    match newest_interpreter() {
        Some((version, program)) => test(root, version, &program),
        None => Ok(()),
    }
}

fn newest_interpreter() -> Option<(&'static str, PathBuf)> {
    VERSIONS.into_iter().find_map(|version| Some((version, interpreter(version)?)))
}

/// Installs the package, with the packages of a file, for the newest Python that is here. Returns the interpreter of the virtual
/// environment.
///
/// # Errors
/// Returns an error if no Python is here, or if the installation fails.
pub(crate) fn install_newest(root: &Path, requirements: &str) -> Result<PathBuf> {
    let (version, program) = newest_interpreter().ok_or_else(|| Error::Failed(missing().unwrap_or_default()))?;
    install(root, version, &program, requirements)
}

/// Does what [`newest`] does with each version that is here.
///
/// # Errors
/// Returns an error if the installation or a test fails.
pub(crate) fn all(root: &Path) -> Result<()> {
    for version in VERSIONS {
        match interpreter(version) {
            Some(program) => test(root, version, &program)?,
            None => println!("Python {version}: not run, because it is not here"),
        }
    }
    Ok(())
}

/// Installs the package and the packages of a file in a virtual environment, and returns its interpreter.
fn install(root: &Path, version: &str, program: &Path, requirements: &str) -> Result<PathBuf> {
    // Tests and benchmarks pin the same packages differently.
    let of = Path::new(requirements).parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let folder = root.join("target/tools").join(format!("python-{version}-{of}"));
    let python = folder.join("bin/python");
    if !python.is_file() {
        run(Command::new(program).args(["-m", "venv"]).arg(&folder), INSTALL)?;
    }
    let mut pip = Command::new(&python);
    pip.current_dir(root).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.arg(format!("./{PACKAGE}")).args(["--requirement", requirements]);
    // The dependencies of the native module stay built.
    pip.env("CARGO_TARGET_DIR", root.join("target/python"));
    run(&mut pip, INSTALL)?;
    Ok(python)
}

fn test(root: &Path, version: &str, program: &Path) -> Result<()> {
    let python = install(root, version, program, REQUIREMENTS)?;
    let mut tests = Command::new(&python);
    run(tests.current_dir(root.join(PACKAGE)).args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]), TESTS)
}

fn run(command: &mut Command, limit: Duration) -> Result<()> {
    println!("{}", process::shown(command));
    match process::run_until(command, Instant::now() + limit)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Error::Failed(format!("{}: {status}", process::shown(command)))),
        None => Err(Error::Failed(format!("{}: stopped after {} s", process::shown(command), limit.as_secs()))),
    }
}
