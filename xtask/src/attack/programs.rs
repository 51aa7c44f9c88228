//! The programs that are attacked: `highwire`, and one whose chat can use a broker.

use std::fs;
use std::path::{Path, PathBuf};

use super::spec::{Attack, Target};
use crate::process::{self, REDIS};
use crate::{Error, Result};

/// The default release build, relative to the project's root. The times of the long form are measured with it.
const PLAIN: &str = "target/release/highwire";

/// The build with the feature `redis`. Cargo would replace it with the next default build, so it is copied.
const WITH_REDIS: &str = "target/attack/highwire-redis";

/// The paths of the programs.
pub(super) struct Programs {
    pub(super) plain: PathBuf,
    /// The program that can use Redis, or the reason why there is none.
    pub(super) with_redis: std::result::Result<PathBuf, String>,
}

impl Programs {
    /// Builds the programs that these attacks need. If `short` is true, builds those of the other tests, and none that can use
    /// Redis, because that takes a minute.
    pub(super) fn build(root: &Path, attacks: &[&Attack], short: bool) -> Result<Self> {
        let is_needed = attacks.iter().any(|attack| matches!(attack.target, Target::Broker));
        let with_redis = match (is_needed, short) {
            (true, false) => build_with_redis(root),
            (true, true) => Err("the short form builds no command with the feature `redis`".into()),
            (false, _) => Err("no attack needs the feature `redis`".into()),
        };
        if short {
            process::build_checked(root)?;
            return Ok(Self { plain: root.join(process::CHECKED).join("highwire"), with_redis });
        }
        process::build_server_with(root, &[])?;
        Ok(Self { plain: root.join(PLAIN), with_redis })
    }

    /// Attacks this program and builds none. The program should have the feature `redis` if a broker is attacked.
    pub(super) fn given(program: &Path) -> Self {
        Self { plain: program.to_owned(), with_redis: redis_server().map(|()| program.to_owned()) }
    }
}

fn redis_server() -> std::result::Result<(), String> {
    REDIS.ensure()
}

fn build_with_redis(root: &Path) -> std::result::Result<PathBuf, String> {
    redis_server()?;
    let copy = || -> Result<PathBuf> {
        process::build_server_with(root, &["--features", "redis"])?;
        let to = root.join(WITH_REDIS);
        fs::create_dir_all(root.join(super::LOGS)).map_err(|error| Error::doing(super::LOGS, error))?;
        fs::copy(root.join(PLAIN), &to).map_err(|error| Error::doing(WITH_REDIS, error))?;
        Ok(to)
    };
    copy().map_err(Error::reason)
}
