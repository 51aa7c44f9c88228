//! `cargo xtask portability`: type-checks the libraries for operating systems other than Linux.
//!
//! This needs no prebuilt standard libraries. Debian has packages with a Rust compiler and the source of its standard
//! library (`rustc-web`, `rust-web-src`), and cargo builds that source for each target. The packages are unpacked below
//! target/ and not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Args;
use crate::process::{self, Probe, Tool, find_program, is_root};
use crate::{Error, Result};

pub(crate) const HELP: &str = "\
Type-checks proto, io, engine and highwire for macOS, FreeBSD and Windows, without the features that need a C compiler.
It runs nothing, so these systems are not tested.

Usage: cargo xtask portability [--target TRIPLE]...

Options:
  --target TRIPLE   only this target; may be given several times
                    (x86_64-apple-darwin, x86_64-unknown-freebsd, x86_64-pc-windows-gnu)

The first run fetches about 140 MB of Debian packages with apt-get into target/portability/ and builds the standard library
for each target.
";

const TARGETS: &[&str] = &["x86_64-apple-darwin", "x86_64-unknown-freebsd", "x86_64-pc-windows-gnu"];

/// The checked crates and their features. TLS, cookies and compression are left out, because they depend on C code,
/// which needs a C compiler for the target.
const CRATES: &[(&str, &[&str])] = &[
    ("highwire-proto", &[]),
    ("highwire-io", &[]),
    ("highwire-engine", &["--features", "call"]),
    ("highwire", &["--no-default-features", "--features", "client,json,tower"]),
];

/// The program with which rustc creates import libraries for Windows.
const DLLTOOL: Tool =
    Tool { name: "x86_64-w64-mingw32-dlltool", probe: Probe::Program, package: "binutils-mingw-w64-x86-64" };

/// The fetched packages whose names contain no version.
const PACKAGES: &[&str] = &["rustc-web", "libstd-rust-web-dev", "rust-web-src"];
/// The names, without the version at their end, of the two other fetched packages, which are libraries of the compiler.
const VERSIONED: &[&str] = &["libstd-rust-web-", "libllvm"];

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let chosen = args.values("--target")?;
    args.finish()?;
    if let Some(unknown) = chosen.iter().find(|name| !TARGETS.contains(&name.as_str())) {
        return Err(Error::Usage(format!("unknown target `{unknown}`; the targets are {}", TARGETS.join(", "))));
    }
    if let Some(reason) = missing(root, true) {
        return Err(Error::Failed(format!("not run: {reason}")));
    }
    check(root, |target| chosen.is_empty() || chosen.iter().any(|name| name == target))
}

/// Type-checks each of [`CRATES`] for each of [`TARGETS`].
pub(crate) fn all(root: &Path) -> Result<()> {
    check(root, |_| true)
}

fn check(root: &Path, is_chosen: impl Fn(&str) -> bool) -> Result<()> {
    let toolchain = toolchain(root);
    let library = toolchain.join("usr/lib/x86_64-linux-gnu");
    let mut failed = Vec::new();
    for target in TARGETS.iter().filter(|target| is_chosen(target)) {
        for (name, features) in CRATES {
            let mut command = Command::new("cargo");
            command
                .current_dir(root)
                .args(["check", "--quiet", "-Zbuild-std=std,panic_abort", "--target", target, "--package", name])
                .args(*features)
                .env("LD_LIBRARY_PATH", &library)
                .env("RUSTC", toolchain.join("usr/bin/rustc"))
                .env("RUSTC_BOOTSTRAP", "1")
                .env("RUSTFLAGS", "-D warnings")
                // A separate folder, because the other builds use another compiler.
                .env("CARGO_TARGET_DIR", root.join("target/portability/target"));
            let status = command.status().map_err(|error| Error::doing("cannot run cargo", error))?;
            println!("{target:<24} {name:<16} {}", if status.success() { "checked" } else { "FAILED" });
            if !status.success() {
                failed.push(format!("{name} for {target}"));
            }
        }
    }
    if failed.is_empty() {
        println!("These systems are type-checked only; nothing was run on them.");
        return Ok(());
    }
    Err(Error::Failed(format!("does not type-check: {}", failed.join(", "))))
}

fn toolchain(root: &Path) -> PathBuf {
    root.join("target/portability/toolchain")
}

/// Returns the reason why this machine cannot run the checks, if there is one. If `install` is true, first tries to
/// install missing tools.
pub(crate) fn missing(root: &Path, install: bool) -> Option<String> {
    let toolchain = toolchain(root);
    if !toolchain.join("usr/bin/rustc").is_file() {
        let how = "`cargo xtask portability` fetches it on Debian";
        if !install || find_program("apt-get").is_none() || find_program("dpkg").is_none() {
            return Some(format!("a Rust compiler with the source of its library is missing ({how})"));
        }
        if let Err(error) = fetch(root, &toolchain) {
            return Some(error.reason());
        }
    }
    if let Err(missing) = if install { DLLTOOL.ensure() } else { is_here(&DLLTOOL) } {
        return Some(missing);
    }
    let have = version(
        Command::new(toolchain.join("usr/bin/rustc"))
            .env("LD_LIBRARY_PATH", toolchain.join("usr/lib/x86_64-linux-gnu")),
    );
    let wanted = supported(root);
    match (have, wanted) {
        (Some(have), Some(wanted)) if have < wanted => {
            Some(format!("Debian's Rust is {}.{}; the project requires {}.{}", have.0, have.1, wanted.0, wanted.1))
        }
        (Some(_), Some(_)) => None,
        _ => Some(format!(
            "the compiler in {} does not run (remove that folder and try again), or Cargo.toml has no rust-version",
            toolchain.display()
        )),
    }
}

fn is_here(tool: &Tool) -> std::result::Result<(), String> {
    if tool.is_here() { Ok(()) } else { Err(format!("{} is missing (`apt-get install {}`)", tool.name, tool.package)) }
}

/// Downloads the packages and unpacks them to `toolchain`.
fn fetch(root: &Path, toolchain: &Path) -> Result<()> {
    let packages = root.join("target/portability/packages");
    std::fs::create_dir_all(&packages).map_err(|error| Error::doing(packages.display(), error))?;
    if is_root() {
        // Without package lists, apt-get finds no package to download.
        let _ = process::output(Command::new("apt-get").args(["update", "-qq"]));
    }
    let mut names: Vec<String> = PACKAGES.iter().map(|name| (*name).to_owned()).collect();
    // The first round finds the compiler's own library, the second finds LLVM, on which that library depends.
    for _ in 0..2 {
        let depends = process::output(Command::new("apt-cache").arg("depends").args(&names))?;
        names.extend(dependencies(&depends).into_iter().map(str::to_owned));
        names.sort_unstable();
        names.dedup();
    }
    println!("fetching {} into target/portability/", names.join(", "));
    process::output(Command::new("apt-get").arg("download").args(&names).current_dir(&packages))?;
    let files = std::fs::read_dir(&packages).map_err(|error| Error::doing(packages.display(), error))?;
    let unpacked = toolchain.with_extension("new");
    let _ = std::fs::remove_dir_all(&unpacked);
    for file in files.flatten().map(|entry| entry.path()).filter(|file| file.extension().is_some_and(|it| it == "deb"))
    {
        process::output(Command::new("dpkg").arg("-x").arg(&file).arg(&unpacked))?;
        let _ = std::fs::remove_file(file);
    }
    // Renames the folder at the end, so that a partly unpacked one is never used.
    std::fs::rename(&unpacked, toolchain).map_err(|error| Error::doing(toolchain.display(), error))
}

/// Returns the names of the [`VERSIONED`] packages in the output of `apt-cache depends`.
fn dependencies(depends: &str) -> Vec<&str> {
    let mut names: Vec<&str> = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| {
            VERSIONED.iter().any(|prefix| {
                let version = name.strip_prefix(prefix).unwrap_or_default();
                !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            })
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the major and minor version that a compiler prints, or `None` if it cannot run or prints no version.
fn version(rustc: &mut Command) -> Option<(u32, u32)> {
    let text = process::output(rustc.arg("--version")).ok()?;
    numbers(text.split_whitespace().nth(1)?)
}

/// Returns the oldest compiler that the project supports, in the form that rustup takes, such as `1.88.0`.
pub(crate) fn oldest_compiler(root: &Path) -> Option<String> {
    supported(root).map(|(major, minor)| format!("{major}.{minor}.0"))
}

/// Returns the oldest Rust version that the project supports.
fn supported(root: &Path) -> Option<(u32, u32)> {
    rust_version(&std::fs::read_to_string(root.join("Cargo.toml")).ok()?)
}

/// Returns the `rust-version` of a manifest.
fn rust_version(manifest: &str) -> Option<(u32, u32)> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""))?;
    numbers(line.split('"').next()?)
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compilers_libraries_are_found_by_their_names() {
        let depends = "rustc-web\n  Depends: libc6\n  Depends: libstd-rust-web-dev\nlibstd-rust-web-dev\n  \
                       Depends: libstd-rust-web-1.96\n  Depends: libllvm22\n  Suggests: libllvm21\n  Depends: libllvm22\n";
        assert_eq!(dependencies(depends), ["libllvm22", "libstd-rust-web-1.96"]);
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert_eq!(numbers("1.96.0"), Some((1, 96)));
        assert!(numbers("1.96.0") > numbers("1.95"));
        assert!(numbers("1.100") > numbers("1.95"));
        assert_eq!(numbers("nightly"), None);
        assert_eq!(rust_version("[workspace.package]\nrust-version = \"1.95\"\n"), Some((1, 95)));
    }
}
