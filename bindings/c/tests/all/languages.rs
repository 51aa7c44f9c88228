//! The examples in other languages that call C: built, started, and asked. A missing language is "not run". Needs a real kernel,
//! because the programs are processes of their own.

use crate::programs::{Running, has, libraries, root};
use std::path::PathBuf;
use std::process::Command;
use testkit::http1::{body, connect, exchange_text, get};

/// Returns a folder in which the library of this build has the name under which it is installed.
fn installed() -> PathBuf {
    let folder = libraries().join("installed");
    std::fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join("libhighwire.so");
    // Another test may have made it.
    let _ = std::os::unix::fs::symlink(libraries().join("libhighwire_c.so"), &link);
    folder
}

fn bindings() -> PathBuf {
    root().join("..")
}

/// Asks the example, and stops it.
fn ask(mut command: Command, language: &str) {
    command.arg("127.0.0.1:0").env("LD_LIBRARY_PATH", installed());
    let running = Running::start(command);
    let address = running.address.clone();
    for _ in 0..3 {
        assert_eq!(body(&get(&address, "/hello")), "Hello, World!", "{language}");
        assert_eq!(body(&get(&address, "/users/a%20b")), "user a b", "{language}");
        let echo = |text: &str| {
            let length = text.len();
            let head = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json";
            exchange_text(connect(&address), format!("{head}\r\nContent-Length: {length}\r\n\r\n{text}"))
        };
        let answer = echo("{\"a\":[1,\"é\"]}");
        assert_eq!(body(&answer), "{\"echo\":{\"a\":[1,\"é\"]}}", "{language}");
        assert!(answer.to_lowercase().contains("content-type: application/json"), "{language}: {answer}");
        assert!(echo("?").starts_with("HTTP/1.1 400 "), "{language}");
        assert!(get(&address, "/nothing").starts_with("HTTP/1.1 404 "), "{language}");
    }
}

#[test]
fn go() {
    if Command::new("go").arg("version").output().is_err() {
        return println!("not run: go is not installed");
    }
    let program = libraries().join("go-hello");
    let folder = bindings().join("go/examples/hello");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(&folder)
        .env("CGO_CFLAGS", format!("-I{}", root().join("include").display()))
        .env("CGO_LDFLAGS", format!("-L{}", installed().display()))
        .output()
        .expect("go");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    ask(Command::new(program), "Go");
}

/// Returns the folder of the JDK, from the place of its compiler.
fn jdk() -> Option<PathBuf> {
    let found = Command::new("sh").args(["-c", "readlink -f \"$(command -v javac)\""]).output().ok()?;
    let compiler = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let folder = compiler.parent()?.parent()?.to_path_buf();
    folder.join("include/jni.h").exists().then_some(folder)
}

#[test]
fn java() {
    let Some(jdk) = jdk() else { return println!("not run: there is no JDK with jni.h") };
    let out = libraries().join("java");
    std::fs::create_dir_all(&out).expect("a folder");
    let source = bindings().join("java/examples");
    let built = Command::new("javac").arg("-d").arg(&out).arg(source.join("Highwire.java")).output().expect("javac");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let include = jdk.join("include");
    let built = Command::new("gcc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(&include)
        .arg("-I")
        .arg(include.join("linux"))
        .arg("-I")
        .arg(root().join("include"))
        .arg(source.join("highwire_jni.c"))
        .arg("-L")
        .arg(installed())
        .arg("-lhighwire")
        .arg("-o")
        .arg(out.join("libhighwire_jni.so"))
        .output()
        .expect("gcc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(jdk.join("bin/java"));
    command.arg(format!("-Djava.library.path={}", out.display())).arg("-cp").arg(&out).arg("Highwire");
    ask(command, "Java");
}

/// Returns the folder of an installed JDK of version 22 or later, which has the Foreign Function API.
fn foreign_jdk() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let version = |folder: &PathBuf| -> Option<u32> {
        let release = std::fs::read_to_string(folder.join("release")).ok()?;
        let version = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION=\""))?;
        version.split(['.', '"']).next()?.parse().ok()
    };
    let given = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let mut found = given.into_iter().chain(folders).filter(|folder| folder.join("bin/javac").exists());
    found.find(|folder| version(folder).is_some_and(|version| version >= 22))
}

#[test]
fn java_without_jni() {
    let Some(jdk) = foreign_jdk() else { return println!("not run: there is no JDK 22 or later") };
    let out = libraries().join("java-foreign");
    std::fs::create_dir_all(&out).expect("a folder");
    let mut command = Command::new(jdk.join("bin/javac"));
    command.arg("-d").arg(&out).arg(bindings().join("java/examples/HighwireForeign.java"));
    let built = command.output().expect("javac");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(jdk.join("bin/java"));
    command.args(["--enable-native-access=ALL-UNNAMED", "-cp"]).arg(&out).arg("HighwireForeign");
    ask(command, "Java without JNI");
}

#[test]
fn node() {
    if !has("node") || !has("npm") {
        return;
    }
    let out = libraries().join("node");
    std::fs::create_dir_all(&out).expect("a folder");
    for file in ["package.json", "hello.js"] {
        std::fs::copy(bindings().join("node/examples").join(file), out.join(file)).expect("a copy");
    }
    let installed_koffi = Command::new("npm").args(["install", "--no-audit", "--no-fund"]).current_dir(&out).output();
    if !installed_koffi.is_ok_and(|output| output.status.success()) {
        return println!("not run: npm cannot install koffi");
    }
    let mut command = Command::new("node");
    command.arg(out.join("hello.js")).env("HIGHWIRE_LIBRARY", installed().join("libhighwire.so"));
    ask(command, "Node");
}

#[test]
fn lua() {
    if Command::new("luajit").arg("-v").output().is_err() {
        return println!("not run: luajit is not installed");
    }
    let mut command = Command::new("luajit");
    command.arg(bindings().join("lua/examples/hello.lua"));
    ask(command, "Lua");
}

#[test]
fn dotnet() {
    if !has("mcs") || !has("mono") {
        return;
    }
    let program = libraries().join("Hello.exe");
    let built = Command::new("mcs")
        .arg(format!("-out:{}", program.display()))
        .arg(bindings().join("dotnet/examples/Hello.cs"))
        .output()
        .expect("mcs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new("mono");
    command.arg(program);
    ask(command, "C#");
}
