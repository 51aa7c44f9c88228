//! `cargo xtask bench bindings`: compares a hello in each language that calls libhighwire with that in Rust, and allocators under the one
//! in C.

use std::path::Path;
use std::process::Command;

use super::memory::{PEAK, peak_mib};
use super::run::{self, Drive};
use super::sample::{Figure, Sample};
use super::scenario::Server;
use super::{Comparison, Plan, cargo_build};
use crate::process::{self, GCC, GO, LUAJIT, MONO, NODE, Tool};
use crate::{Error, Result, install};

const OPENING: &str = "\
# Languages and allocators side by side

`cargo xtask bench bindings` made this page. Each figure is the median of the rounds, with the smallest and the largest. The server
runs on CPU 0 with one worker, and the generator on the last CPU. The CPU time is the server's, with all its threads. The first
server ran twice; ignore differences smaller than that between its two rows.
";

const OUTPUT: &str = "bench/bindings.md";

/// The folder of the installed library and of the compiled programs.
const FOLDER: &str = "target/bench/bindings";

const RUST: (&str, &str) = ("Rust", "target/release/highwire demo --listen 127.0.0.1:PORT --workers 1");
const RUST_AGAIN: (&str, &str) = ("Rust again", RUST.1);
const RUST_READINESS: (&str, &str) =
    ("Rust (readiness)", "target/release/highwire demo --listen 127.0.0.1:PORT --workers 1 --engine readiness");
const C: (&str, &str) = ("highwire.h", "env PATHS FOLDER/hello 127.0.0.1:PORT");
const HAYWIRE: (&str, &str) = ("haywire.h", "env PATHS FOLDER/haywire_hello PORT");
const GO_HELLO: (&str, &str) = ("Go, cgo", "env PATHS GOMAXPROCS=1 FOLDER/go_hello 127.0.0.1:PORT");
const JAVA: (&str, &str) =
    ("Java, JNI", "env PATHS java -Djava.library.path=FOLDER -cp FOLDER Highwire 127.0.0.1:PORT");
const CSHARP: (&str, &str) = ("C#, P/Invoke under Mono", "env PATHS mono FOLDER/Hello.exe 127.0.0.1:PORT");
const LUA: (&str, &str) = ("Lua, LuaJIT's ffi", "env PATHS luajit bindings/lua/examples/hello.lua 127.0.0.1:PORT");

/// The environment in which programs find the library.
const PATHS: &str = "LD_LIBRARY_PATH=target/bench/bindings/lib";

/// What the clients do, and the servers: their names and commands.
struct Task {
    name: &'static str,
    what: &'static str,
    path: &'static str,
    connections: u32,
    depth: u32,
    servers: &'static [(&'static str, &'static str)],
}

const TASKS: &[Task] = &[
    Task {
        name: "hello",
        what: "512 connections, `/hello`. httpserver.h always uses readiness",
        path: "/hello",
        connections: 512,
        depth: 1,
        servers: &[
            RUST,
            RUST_AGAIN,
            C,
            HAYWIRE,
            GO_HELLO,
            JAVA,
            CSHARP,
            LUA,
            (
                "JavaScript, koffi",
                "env HIGHWIRE_LIBRARY=FOLDER/lib/libhighwire.so node FOLDER/node/hello.js 127.0.0.1:PORT",
            ),
            RUST_READINESS,
            ("httpserver.h", "env PATHS FOLDER/httpserver_hello PORT"),
        ],
    },
    Task {
        name: "pipelined",
        what: "64 connections with 32 requests in flight on each, `/hello`",
        path: "/hello",
        connections: 64,
        depth: 32,
        servers: &[RUST, RUST_AGAIN, C, HAYWIRE, GO_HELLO, JAVA, CSHARP, LUA],
    },
    Task {
        name: "allocators",
        what: "512 connections, `/users/alice` of the C program, which decodes and copies a parameter; the allocator by LD_PRELOAD",
        path: "/users/alice",
        connections: 512,
        depth: 1,
        servers: &[
            ("glibc", "env PATHS FOLDER/hello 127.0.0.1:PORT"),
            ("glibc again", "env PATHS FOLDER/hello 127.0.0.1:PORT"),
            ("jemalloc", "env PATHS LD_PRELOAD=libjemalloc.so.2 FOLDER/hello 127.0.0.1:PORT"),
            ("tcmalloc", "env PATHS LD_PRELOAD=libtcmalloc_minimal.so.4 FOLDER/hello 127.0.0.1:PORT"),
            ("mimalloc", "env PATHS LD_PRELOAD=libmimalloc.so.2 FOLDER/hello 127.0.0.1:PORT"),
        ],
    },
];

/// The allocators of the last task.
const ALLOCATORS: &[Tool] = &[
    library("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    library("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    library("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
];

const fn library(name: &'static str, file: &'static str, package: &'static str) -> Tool {
    Tool { name, probe: process::Probe::Library(file), package }
}

fn server(&(name, command): &(&str, &str)) -> Server {
    Server::new(name, &command.replace("PATHS", PATHS).replace("FOLDER", FOLDER), Some("0"))
}

/// Builds the programs. A language whose program cannot be built has no figures.
pub(super) fn prepare(root: &Path) -> Result<()> {
    super::build_programs(root)?;
    cargo_build(root, &["build", "-p", "highwire-cli", "--release", "--target-dir", "target"])?;
    let folder = root.join(FOLDER);
    install::install(root, &folder, &folder, install::Options::default())?;
    GCC.ensure().map_err(Error::Failed)?;
    for name in ["hello", "haywire_hello", "httpserver_hello"] {
        let source = format!("bindings/c/examples/{name}.c");
        let mut command = gcc(root);
        command.args([&source, "-lhighwire", "-o", &format!("{FOLDER}/{name}")]);
        process::output(&mut command)?;
    }
    for (what, built) in [
        ("Go", build_go(root)),
        ("Java", build_java(root)),
        ("C#", build_csharp(root)),
        ("Lua", LUAJIT.ensure().map_err(Error::Failed)),
        ("JavaScript", build_node(root)),
    ] {
        if let Err(error) = built {
            println!("not run: {what}: {}", error.reason());
        }
    }
    for tool in ALLOCATORS {
        if let Err(reason) = tool.ensure() {
            println!("not run: {reason}");
        }
    }
    Ok(())
}

/// Returns a command that compiles a C program with the installed library.
fn gcc(root: &Path) -> Command {
    let mut command = Command::new("gcc");
    command.current_dir(root).args(["-O2", &format!("-I{FOLDER}/include"), &format!("-L{FOLDER}/lib")]);
    command
}

fn build_go(root: &Path) -> Result<()> {
    GO.ensure().map_err(Error::Failed)?;
    let folder = root.join(FOLDER);
    let mut command = Command::new("go");
    command.current_dir(root.join("bindings/go/examples/hello")).args(["build", "-o"]).arg(folder.join("go_hello"));
    command.env("CGO_CFLAGS", format!("-O2 -I{}", folder.join("include").display()));
    command.env("CGO_LDFLAGS", format!("-L{}", folder.join("lib").display()));
    process::output(&mut command).map(drop)
}

fn build_java(root: &Path) -> Result<()> {
    let Some(compiler) = process::find_program("javac").and_then(|path| path.canonicalize().ok()) else {
        return Err(Error::Failed("javac is missing".into()));
    };
    let include = compiler.ancestors().nth(2).unwrap_or(root).join("include");
    let mut command = Command::new("javac");
    command.current_dir(root).args(["-d", FOLDER, "bindings/java/examples/Highwire.java"]);
    process::output(&mut command)?;
    let mut command = gcc(root);
    command.args(["-shared", "-fPIC"]).arg("-I").arg(&include).arg("-I").arg(include.join("linux"));
    command.args([
        "bindings/java/examples/highwire_jni.c",
        "-lhighwire",
        "-o",
        &format!("{FOLDER}/libhighwire_jni.so"),
    ]);
    process::output(&mut command).map(drop)
}

fn build_csharp(root: &Path) -> Result<()> {
    MONO.ensure().map_err(Error::Failed)?;
    let mut command = Command::new("mcs");
    command.current_dir(root).args([&format!("-out:{FOLDER}/Hello.exe"), "bindings/dotnet/examples/Hello.cs"]);
    process::output(&mut command).map(drop)
}

fn build_node(root: &Path) -> Result<()> {
    NODE.ensure().map_err(Error::Failed)?;
    let folder = root.join(FOLDER).join("node");
    std::fs::create_dir_all(&folder).map_err(|error| Error::doing(folder.display(), error))?;
    for file in ["package.json", "hello.js"] {
        let from = root.join("bindings/node/examples").join(file);
        std::fs::copy(&from, folder.join(file)).map_err(|error| Error::doing(from.display(), error))?;
    }
    let mut command = Command::new("npm");
    process::output(command.current_dir(&folder).args(["install", "--no-audit", "--no-fund"])).map(drop)
}

pub(super) fn run(root: &Path, plan: &Plan) -> Result<()> {
    let mut comparison = Comparison::new(root, plan, OUTPUT, OPENING);
    for task in TASKS {
        let servers: Vec<Server> = task.servers.iter().map(server).collect();
        let drive =
            Drive::Closed { connections: task.connections, depth: task.depth, headers: false, seconds: plan.seconds };
        comparison.add(task.name, task.what, "server", &servers, task.path, drive, "Servers", measure)?;
    }
    println!("wrote {OUTPUT}");
    Ok(())
}

/// Measures a server, with the memory of its process.
fn measure(root: &Path, server: &Server, port: u16, path: &str, drive: Drive<'_>) -> Result<Sample> {
    let running = run::start(root, server, port)?;
    let mut sample = run::drive(root, &running, port, path, drive)?;
    sample.figures.push(Figure { name: PEAK, value: peak_mib(running.id()) });
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_listen_on_the_port_that_is_asked() {
        for pair in TASKS.iter().flat_map(|task| task.servers) {
            let line = server(pair).line(4321).join(" ");
            assert!(line.contains("4321") && !line.contains("FOLDER") && !line.contains("PATHS"), "{line}");
        }
    }
}
