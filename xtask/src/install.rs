//! `cargo xtask install`: installs libhighwire, its header, and what pkg-config and CMake need.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::Args;
use crate::{Error, Result, process};

pub(crate) const HELP: &str = "\
Builds libhighwire, the library for C, and installs it into a folder.

Usage: cargo xtask install --prefix DIR [--destdir DIR] [--without-tls] [--small] [--keep-symbols]

Options:
  --prefix DIR    the folder, such as /usr/local; it gets include/, lib/, lib/pkgconfig/, lib/cmake/ and
                  share/licenses/highwire/
  --destdir DIR   put the files below DIR, as packages are made: DIR/usr/local/lib/...; what is installed still
                  names the prefix. The default is the environment variable DESTDIR, if it is set
  --without-tls   leave TLS and compression out, so that the library is half as large
  --small         optimize for size in place of speed
  --keep-symbols  keep the names and lines of functions, for debuggers and profilers

The static library has only the symbols of the three headers, so that a program may link other versions of what is
inside, such as zstd. It is made with ld, objcopy and ar of binutils.

Programs then find the library with `pkg-config --cflags --libs highwire`, or in CMake with
`find_package(Highwire)` and `target_link_libraries(PROGRAM Highwire::highwire)`.
";

/// The libraries of the system on which the static library depends.
const SYSTEM_LIBRARIES: &str = "-lpthread -lm -ldl -lgcc_s";

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let prefix: Option<String> = args.value("--prefix")?;
    let destination: Option<String> = args.value("--destdir")?;
    let options = Options {
        without_tls: args.flag("--without-tls"),
        small: args.flag("--small"),
        keeps_symbols: args.flag("--keep-symbols"),
    };
    args.finish()?;
    let Some(prefix) = prefix else { return Err(Error::Usage("`install` needs --prefix DIR".into())) };
    let prefix = root.join(prefix);
    let destination = destination.or_else(|| std::env::var("DESTDIR").ok()).filter(|folder| !folder.is_empty());
    let place = match destination {
        // The prefix is absolute, and `join` would take it alone.
        Some(folder) => root.join(folder).join(prefix.strip_prefix("/").unwrap_or(&prefix)),
        None => prefix.clone(),
    };
    install(root, &prefix, &place, options)
}

/// How to build the library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    without_tls: bool,
    small: bool,
    keeps_symbols: bool,
}

/// Builds the library and installs it into the folder `place`, for programs that will find it in `prefix`.
pub(crate) fn install(root: &Path, prefix: &Path, place: &Path, options: Options) -> Result<()> {
    let version = version(root)?;
    let major = version.split('.').next().unwrap_or_default();
    let soname = format!("libhighwire.so.{major}");
    let mut features = vec!["--lib"];
    if options.without_tls {
        features.push("--no-default-features");
    }
    // Each kind on its own, because only the shared library has a name for the loader.
    let profile = if options.small { "small" } else { "release" };
    for (kind, link) in [("staticlib", None), ("cdylib", Some(format!("link-arg=-Wl,-soname,{soname}")))] {
        let mut command = Command::new("cargo");
        command.current_dir(root).args(["rustc", "--profile", profile, "-p", "highwire-c", "--target-dir", "target"]);
        command.args(&features).args(["--crate-type", kind]);
        if let Some(option) = link {
            command.args(["--", "-C", &option]);
        }
        process::run_shown(&mut command)?;
    }
    let built = root.join("target").join(profile);
    let lib = place.join("lib");
    let make = |folder: &Path| std::fs::create_dir_all(folder).map_err(|error| Error::doing(folder.display(), error));
    for folder in ["include", "lib/pkgconfig", "lib/cmake/Highwire", LICENSES] {
        make(&place.join(folder))?;
    }
    let copy =
        |from: &Path, to: &Path| std::fs::copy(from, to).map(drop).map_err(|error| Error::doing(to.display(), error));
    for header in ["highwire.h", "haywire.h", "httpserver.h"] {
        copy(&root.join("bindings/c/include").join(header), &place.join("include").join(header))?;
    }
    static_library(&built, &lib.join("libhighwire.a"), options)?;
    let full = format!("libhighwire.so.{version}");
    copy(&built.join("libhighwire_c.so"), &lib.join(&full))?;
    if !options.keeps_symbols {
        process::output(Command::new("strip").arg("--strip-unneeded").arg(lib.join(&full)))?;
    }
    for (link, target) in [(&*soname, &*full), ("libhighwire.so", &*soname)] {
        let link = lib.join(link);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(target, &link).map_err(|error| Error::doing(link.display(), error))?;
    }
    let write = |file: &str, text: String| {
        let file = place.join(file);
        std::fs::write(&file, text).map_err(|error| Error::doing(file.display(), error))
    };
    write("lib/pkgconfig/highwire.pc", pkg_config(prefix, &version))?;
    write("lib/cmake/Highwire/HighwireConfig.cmake", cmake(&soname))?;
    write("lib/cmake/Highwire/HighwireConfigVersion.cmake", cmake_version(&version))?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root.join(file), &place.join(LICENSES).join(file))?;
    }
    write(&format!("{LICENSES}/THIRD-PARTY"), third_parties(root, options)?)?;
    println!("installed into {}", place.display());
    Ok(())
}

/// Where the licenses of the library and of what is inside of it are.
const LICENSES: &str = "share/licenses/highwire";

/// The beginnings of the names that the headers declare. The static library has no others.
const NAMES: [&str; 3] = ["highwire_", "hw_", "http_"];

/// Makes the static library of one object, whose other names are local to it.
fn static_library(built: &Path, out: &Path, options: Options) -> Result<()> {
    let object = built.join("highwire.o");
    let archive = built.join("libhighwire_c.a");
    process::output(Command::new("ld").args(["-r", "--whole-archive"]).arg(archive).arg("-o").arg(&object))?;
    let mut command = Command::new("objcopy");
    // The bitcode of Rust's standard library is of no use here, and other tools stumble over it.
    command.args(["--wildcard", "--remove-section=.llvm*"]);
    command.args(NAMES.map(|name| format!("--keep-global-symbol={name}*")));
    if !options.keeps_symbols {
        command.arg("--strip-debug");
    }
    process::output(command.arg(&object))?;
    let _ = std::fs::remove_file(out);
    process::output(Command::new("ar").arg("rcs").arg(out).arg(&object))?;
    let names = process::output(Command::new("nm").args(["-g", "--defined-only", "--format=posix"]).arg(out))?;
    let names = names.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name);
    let foreign: Vec<&str> = names.filter(|name| !NAMES.iter().any(|own| name.starts_with(own))).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    Err(Error::Failed(format!("{} has names of others: {}", out.display(), foreign.join(" "))))
}

/// Returns the licenses of the libraries that are part of libhighwire.
fn third_parties(root: &Path, options: Options) -> Result<String> {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["tree", "--locked", "-p", "highwire-c", "-e", "normal,build", "--prefix", "none"]);
    command.args(["-f", "{p}|{l}|{r}"]);
    if options.without_tls {
        command.arg("--no-default-features");
    }
    let tree = process::output(&mut command)?;
    let mut packages: Vec<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    packages.sort_unstable();
    packages.dedup();
    let sources = sources()?;
    let mut text = String::from("libhighwire contains these libraries, or was built with them.\n");
    for package in packages {
        let [package, license, home] = package.split('|').collect::<Vec<_>>()[..] else { continue };
        let Some((name, version)) = package.split_once(" v").filter(|_| !package.contains(" (/")) else {
            // The project's own packages have a path behind the version.
            continue;
        };
        // Macros have a note there.
        let version = version.split(' ').next().unwrap_or_default();
        let rule = "=".repeat(80);
        text += &format!("\n{rule}\n{name} {version}, {license}\n{home}\n{rule}\n");
        let folder =
            sources.iter().map(|folder| folder.join(format!("{name}-{version}"))).find(|folder| folder.is_dir());
        let Some(folder) = folder else {
            return Err(Error::Failed(format!("the sources of {name} {version} are not in cargo's registry")));
        };
        for file in license_files(&folder)? {
            let words = std::fs::read(&file).map_err(|error| Error::doing(file.display(), error))?;
            text += &format!("\n{}\n", String::from_utf8_lossy(&words).trim_end());
        }
    }
    Ok(text)
}

/// Returns the folders in which cargo has unpacked the sources of packages.
fn sources() -> Result<Vec<PathBuf>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let folder = home.unwrap_or_default().join("registry/src");
    entries(&folder)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::doing(folder.display(), error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// Returns the files with licenses in a folder of sources, and in the folders of C code in it.
fn license_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let names = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
    let is_license = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        path.is_file() && names.iter().any(|known| name.starts_with(known))
    };
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() {
            files.extend(entries(&path)?.into_iter().filter(is_license));
        } else if is_license(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// Returns the version of the workspace.
fn version(root: &Path) -> Result<String> {
    let manifest =
        std::fs::read_to_string(root.join("Cargo.toml")).map_err(|error| Error::doing("Cargo.toml", error))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|rest| rest.strip_suffix('"'));
    version.map(str::to_owned).ok_or_else(|| Error::Failed("Cargo.toml has no version".into()))
}

fn pkg_config(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: highwire\n\
         Description: HTTP server\nVersion: {version}\nLibs: -L${{libdir}} -lhighwire\n\
         Libs.private: {SYSTEM_LIBRARIES}\nCflags: -I${{includedir}}\n",
        prefix.display()
    )
}

fn cmake(soname: &str) -> String {
    let system: Vec<&str> = SYSTEM_LIBRARIES.split_whitespace().filter_map(|name| name.strip_prefix("-l")).collect();
    let system = system.join(";");
    format!(
        "# Defines the libraries Highwire::highwire and Highwire::highwire_static.\n\
         get_filename_component(_highwire_prefix \"${{CMAKE_CURRENT_LIST_DIR}}/../../..\" ABSOLUTE)\n\
         if(NOT TARGET Highwire::highwire)\n  add_library(Highwire::highwire SHARED IMPORTED)\n  \
         set_target_properties(Highwire::highwire PROPERTIES\n    \
         IMPORTED_LOCATION \"${{_highwire_prefix}}/lib/{soname}\"\n    \
         INTERFACE_INCLUDE_DIRECTORIES \"${{_highwire_prefix}}/include\")\n  \
         add_library(Highwire::highwire_static STATIC IMPORTED)\n  \
         set_target_properties(Highwire::highwire_static PROPERTIES\n    \
         IMPORTED_LOCATION \"${{_highwire_prefix}}/lib/libhighwire.a\"\n    \
         INTERFACE_LINK_LIBRARIES \"{system}\"\n    \
         INTERFACE_INCLUDE_DIRECTORIES \"${{_highwire_prefix}}/include\")\nendif()\n"
    )
}

/// Before 1.0, another minor version is another interface.
fn cmake_version(version: &str) -> String {
    format!(
        "set(PACKAGE_VERSION \"{version}\")\nif(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_COMPATIBLE FALSE)\nelse()\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\n  \
         if(PACKAGE_FIND_VERSION STREQUAL PACKAGE_VERSION)\n    set(PACKAGE_VERSION_EXACT TRUE)\n  endif()\nendif()\n"
    )
}
