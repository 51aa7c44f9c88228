//! The folder of a server: its configuration, and the files that it serves.
//!
//! All servers get hard links to the same files. The kernel may cache a file in single pages or in large folios, which
//! depends on chance and changes the cost of sending it (measured: 100 KB cost 10 to 15 % more in single pages).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::scenario::Server;
use super::{proxies, tls};
use crate::{Error, Result};

/// The files of the static scenarios and their sizes in bytes.
const FILES: &[(&str, u64)] =
    &[("1k.txt", 1024), ("100k.bin", 100_000), ("2m.bin", 2_000_000), ("10m.bin", 10_000_000)];

/// The folder of the files. The servers' folders are beside it, because hard links need the same file system.
const COPY: &str = "target/bench-files";

/// Writes the files that all servers share.
pub(super) fn write_files(root: &Path) -> Result<()> {
    let copy = root.join(COPY);
    let write = || {
        std::fs::create_dir_all(&copy)?;
        for (file, bytes) in FILES {
            // Varied bytes that compress badly.
            let content: Vec<u8> = (0..*bytes).map(|at| b'!' + (at * at / 7 % 90) as u8).collect();
            std::fs::write(copy.join(file), content)?;
        }
        Ok(())
    };
    write().map_err(|error: std::io::Error| Error::doing(copy.display(), error))
}

/// A temporary folder with the configuration and files of a server, if the server's command contains `DIR`. Dropping
/// the value removes the folder.
pub(super) struct Folder {
    path: Option<PathBuf>,
}

impl Folder {
    pub(super) fn for_server(root: &Path, server: &Server, port: u16) -> Result<Self> {
        if !server.command.iter().any(|word| word.contains("DIR")) {
            return Ok(Self { path: None });
        }
        let path = root.join(format!("target/bench-{}-{port}", std::process::id()));
        // The first server also runs as `NAME again`, with the same configuration. Highwire needs no configuration.
        let name = server.name.trim_end_matches(" again");
        let template = root.join(format!("bench/peers/{name}.conf"));
        let write = || {
            std::fs::create_dir_all(path.join("www"))?;
            std::fs::write(path.join("www/hello"), "Hello, World!")?;
            for (file, _) in FILES {
                std::fs::hard_link(root.join(COPY).join(file), path.join("www").join(file))?;
            }
            if server.command.iter().any(|word| word.contains("highwire")) {
                return Ok(());
            }
            // A sparse file, which uses no disk space.
            std::fs::File::create(path.join("www").join(tls::DOWNLOAD_FILE))?.set_len(tls::DOWNLOAD_BYTES)?;
            if name.ends_with("-tls") {
                certificate(&path)?;
            }
            let text = std::fs::read_to_string(&template)?;
            let text = text.replace("@PORT@", &port.to_string()).replace("@DIR@", &path.to_string_lossy());
            let text = text.replace("@UPSTREAM@", &proxies::UPSTREAM_PORT.to_string());
            std::fs::write(path.join(format!("{name}.conf")), text)
        };
        let folder = Self { path: Some(path.clone()) };
        write().map_err(|error| Error::doing(template.display(), error))?;
        Ok(folder)
    }

    pub(super) fn shown(&self) -> String {
        self.path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

/// Makes a certificate of the same kind as Highwire's self-signed one: ECDSA with P-256.
fn certificate(folder: &Path) -> std::io::Result<()> {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"]).current_dir(folder);
    let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if done.success() { Ok(()) } else { Err(std::io::Error::other("openssl cannot make a certificate")) }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}
