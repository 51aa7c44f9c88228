//! `cargo xtask install`: installs libhighwire, its header, and what pkg-config and CMake need.

use std::path::Path;
use std::process::Command;

use crate::args::Args;
use crate::{Error, Result, process};

pub(crate) const HELP: &str = "\
Builds libhighwire, the library for C, and installs it into a folder.

Usage: cargo xtask install --prefix DIR [--without-tls] [--small]

Options:
  --prefix DIR    the folder, such as /usr/local; it gets include/, lib/, lib/pkgconfig/ and lib/cmake/
  --without-tls   leave TLS and compression out, so that the library is half as large
  --small         optimize for size in place of speed

Programs then find the library with `pkg-config --cflags --libs highwire`, or in CMake with
`find_package(Highwire)` and `target_link_libraries(PROGRAM Highwire::highwire)`.
";

/// The libraries of the system on which the static library depends.
const SYSTEM_LIBRARIES: &str = "-lpthread -lm -ldl -lgcc_s";

pub(crate) fn run(root: &Path, mut args: Args) -> Result<()> {
    let prefix: Option<String> = args.value("--prefix")?;
    let options = Options { without_tls: args.flag("--without-tls"), small: args.flag("--small") };
    args.finish()?;
    let Some(prefix) = prefix else { return Err(Error::Usage("`install` needs --prefix DIR".into())) };
    install(root, &root.join(prefix), options)
}

/// How to build the library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    without_tls: bool,
    small: bool,
}

/// Builds the library and installs it into a folder.
pub(crate) fn install(root: &Path, prefix: &Path, options: Options) -> Result<()> {
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
    let lib = prefix.join("lib");
    let place = |folder: &Path| std::fs::create_dir_all(folder).map_err(|error| Error::doing(folder.display(), error));
    for folder in ["include", "lib/pkgconfig", "lib/cmake/Highwire"] {
        place(&prefix.join(folder))?;
    }
    let copy =
        |from: &Path, to: &Path| std::fs::copy(from, to).map(drop).map_err(|error| Error::doing(to.display(), error));
    for header in ["highwire.h", "haywire.h", "httpserver.h"] {
        copy(&root.join("bindings/c/include").join(header), &prefix.join("include").join(header))?;
    }
    copy(&built.join("libhighwire_c.a"), &lib.join("libhighwire.a"))?;
    let full = format!("libhighwire.so.{version}");
    copy(&built.join("libhighwire_c.so"), &lib.join(&full))?;
    for (link, target) in [(&*soname, &*full), ("libhighwire.so", &*soname)] {
        let link = lib.join(link);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(target, &link).map_err(|error| Error::doing(link.display(), error))?;
    }
    let write = |file: &str, text: String| {
        let file = prefix.join(file);
        std::fs::write(&file, text).map_err(|error| Error::doing(file.display(), error))
    };
    write("lib/pkgconfig/highwire.pc", pkg_config(prefix, &version))?;
    write("lib/cmake/Highwire/HighwireConfig.cmake", cmake(&soname))?;
    write("lib/cmake/Highwire/HighwireConfigVersion.cmake", cmake_version(&version))?;
    println!("installed into {}", prefix.display());
    Ok(())
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
    format!(
        "# Defines the library Highwire::highwire.\n\
         get_filename_component(_highwire_prefix \"${{CMAKE_CURRENT_LIST_DIR}}/../../..\" ABSOLUTE)\n\
         if(NOT TARGET Highwire::highwire)\n  add_library(Highwire::highwire SHARED IMPORTED)\n  \
         set_target_properties(Highwire::highwire PROPERTIES\n    \
         IMPORTED_LOCATION \"${{_highwire_prefix}}/lib/{soname}\"\n    \
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
