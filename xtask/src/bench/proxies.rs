//! `cargo xtask bench proxies`: compares reverse proxies by the CPU time that a request costs them, before the same server.

use std::path::Path;

use super::run::{self, Drive};
use super::sample::generator_cpu;
use super::scenario::Server;
use super::{Comparison, FIRST_PORT, Plan, cargo_build, folder};
use crate::process::{HAPROXY, NGINX};
use crate::{Error, Result};

const OUTPUT: &str = "bench/proxies.md";

const OPENING: &str = "\
# Reverse proxies side by side

`cargo xtask bench proxies` made this page. Each figure is the median of the rounds, with the smallest and the largest. The proxy
runs on CPU 0, and the generator and the server behind the proxy, Highwire with one worker, on the last CPU. The CPU time is the
proxy's own. All proxies keep their connections to that server, and add X-Forwarded-For, -Proto and -Host. The first proxy ran
twice; ignore differences smaller than that between its two rows.
";

/// The port of the server behind the proxies. It is below those of the proxies.
pub(super) const UPSTREAM_PORT: u16 = FIRST_PORT - 1;

/// The name and the command of each proxy.
const PROXIES: &[(&str, &str)] = &[
    ("highwire", HIGHWIRE),
    ("highwire again", HIGHWIRE),
    ("highwire (readiness)", HIGHWIRE_READINESS),
    ("nginx-proxy", "nginx -e stderr -p DIR -c DIR/nginx-proxy.conf"),
    ("haproxy", "haproxy -db -f DIR/haproxy.conf"),
];

const HIGHWIRE: &str =
    "target/release/highwire serve DIR/www --workers 1 --listen 127.0.0.1:PORT --proxy /=http://127.0.0.1:UPSTREAM";
const HIGHWIRE_READINESS: &str = "target/release/highwire serve DIR/www --workers 1 --engine readiness --listen 127.0.0.1:PORT --proxy /=http://127.0.0.1:UPSTREAM";

/// What the clients do.
struct Task {
    name: &'static str,
    what: &'static str,
    path: &'static str,
    connections: u32,
}

const TASKS: &[Task] = &[
    Task { name: "small responses", what: "512 connections, bodies of 13 bytes", path: "/hello", connections: 512 },
    Task { name: "large responses", what: "16 connections, bodies of 10 MB", path: "/10m.bin", connections: 16 },
];

fn upstream() -> Server {
    let command = "target/release/highwire serve DIR/www --workers 1 --listen 127.0.0.1:PORT";
    Server::new("upstream", command, Some(&generator_cpu()))
}

fn proxy(name: &str, command: &str) -> Server {
    Server::new(name, &command.replace("UPSTREAM", &UPSTREAM_PORT.to_string()), Some("0"))
}

pub(super) fn prepare(root: &Path) -> Result<()> {
    for tool in [NGINX, HAPROXY] {
        tool.ensure().map_err(Error::Failed)?;
    }
    folder::write_files(root)?;
    super::build_programs(root)?;
    cargo_build(root, &["build", "-p", "highwire-cli", "--release", "--target-dir", "target"])
}

pub(super) fn run(root: &Path, plan: &Plan) -> Result<()> {
    let behind = upstream();
    let port = run::free_port(std::iter::once(UPSTREAM_PORT))?;
    let _behind = run::start(root, &behind, port)?;
    let proxies: Vec<Server> = PROXIES.iter().map(|(name, command)| proxy(name, command)).collect();
    let title = format!("Proxies, before `{}`", behind.line(UPSTREAM_PORT).join(" "));
    let mut comparison = Comparison::new(root, plan, OUTPUT, OPENING);
    for task in TASKS {
        let drive = Drive::Closed { connections: task.connections, depth: 1, headers: false, seconds: plan.seconds };
        comparison.add(task.name, task.what, "proxy", &proxies, task.path, drive, &title, run::measure)?;
    }
    println!("wrote {OUTPUT}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_and_their_templates_name_the_same_server() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for (name, command) in PROXIES {
            let line = proxy(name, command).line(80).join(" ");
            match std::fs::read_to_string(root.join(format!("bench/peers/{name}.conf"))) {
                Ok(template) => assert!(template.contains("127.0.0.1:@UPSTREAM@"), "{name}"),
                Err(_) => assert!(line.ends_with(&format!("127.0.0.1:{UPSTREAM_PORT}")), "{line}"),
            }
        }
    }
}
