//! Debian's PostgreSQL, in a folder of its own, for tests and benchmarks.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time that PostgreSQL has to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server with an empty database. When it is dropped, the server ends and its folder is removed.
#[derive(Debug)]
pub struct Postgresql {
    folder: PathBuf,
    server: Option<Child>,
    port: u16,
}

/// Returns the folder of PostgreSQL's programs, which Debian keeps out of the path.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.pop()
}

/// Returns a command. PostgreSQL refuses to run as root, so root runs it as the user of Debian's package.
fn command(program: &Path, is_root: bool) -> Command {
    if !is_root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
    command
}

fn done(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))))
}

impl Postgresql {
    /// Starts a server on this port of 127.0.0.1. It does not survive a crash of the machine, because it waits for no disk.
    ///
    /// # Errors
    /// Returns an error if PostgreSQL is not installed or does not start.
    pub fn start(port: u16) -> io::Result<Postgresql> {
        let programs = programs().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "PostgreSQL is missing (`apt-get install postgresql`)")
        })?;
        let folder = std::env::temp_dir().join(format!("highwire-postgresql-{}-{port}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut this = Postgresql { folder: folder.clone(), server: None, port };
        let is_root = Command::new("id").arg("-u").output()?.stdout.trim_ascii() == b"0";
        if is_root {
            done(Command::new("chown").arg("postgres").arg(&folder))?;
        }
        let data = folder.join("data");
        let mut initdb = command(&programs.join("initdb"), is_root);
        done(
            initdb.args(["-A", "trust", "-U", "test", "--no-sync", "-E", "UTF8", "-D"]).arg(&data).current_dir(&folder),
        )?;
        let mut server = command(&programs.join("postgres"), is_root);
        server.arg("-D").arg(&data).arg("-k").arg(&folder).args(["-p", &port.to_string()]);
        server.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]).current_dir(&folder);
        server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(folder.join("log"))?);
        this.server = Some(server.spawn()?);
        let begun = Instant::now();
        // The socket listens before the server answers; `createdb` fails until it does.
        let mut createdb = command(&programs.join("createdb"), is_root);
        createdb.args(["-h", "127.0.0.1", "-U", "test", "-p", &port.to_string(), "test"]).current_dir(&folder);
        while TcpStream::connect(("127.0.0.1", port)).is_err() || done(&mut createdb).is_err() {
            if begun.elapsed() > PATIENCE {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                return Err(io::Error::other(format!("PostgreSQL does not start: {log}")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(this)
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        format!("postgres://test@127.0.0.1:{}/test", self.port)
    }
}

impl Drop for Postgresql {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // SIGQUIT ends all its processes at once.
            let _ = Command::new("kill").args(["-QUIT", &server.id().to_string()]).status();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}
