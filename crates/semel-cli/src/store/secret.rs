//! The hash secret of a folder stays what it was. With another one no earlier key is found again: every
//! retry would run once more, and nobody would be told.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result, bail};
use semel::{Engine, Principal, Scope};

/// Hidden, so that the store does not take it for somebody else's.
const NAME: &str = ".hash-secret-check";
const DRAFT: &str = ".hash-secret-check.new";

/// Compares the secret that `engine` hashes with to the one this folder began with, which is `given` or the
/// store's own.
pub(super) async fn check(folder: &Path, engine: &Engine, given: bool) -> Result<()> {
    let file = folder.join(NAME);
    let value = value(engine)?;
    match fs::read_to_string(&file) {
        Ok(first) if first == value => Ok(()),
        Ok(_) => bail!(
            "the hash secret is not the one that {} began with ({NAME}): no earlier key would be found, \
             and retries would run again; {}, or begin in another folder with --store file:PATH",
            folder.display(),
            if given {
                "give that one with --hash-secret-file or SEMEL_HASH_SECRET, or none if it began \
                 without"
            } else {
                "give that one with --hash-secret-file or SEMEL_HASH_SECRET"
            }
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // With records in it, a folder began with a secret, and nobody can say which; the store's own
            // is in it.
            if given && engine.store().stats().await?.records > 0 {
                bail!(
                    "{} has records and no {NAME}, so nobody can tell whether they were made with this \
                     hash secret; bring that file back, or begin in another folder with --store file:PATH",
                    folder.display()
                );
            }
            write(folder, &value)
                .with_context(|| format!("cannot write {}; make it writable", file.display()))
        }
        Err(error) => {
            Err(error).with_context(|| format!("cannot read {}; make it readable", file.display()))
        }
    }
}

/// Tells secrets apart and does not tell them: the keyed hash of a key that no request has.
fn value(engine: &Engine) -> Result<String> {
    let key = Scope::new("semel", Principal::Anonymous, "hash secret").key("check")?;
    let hash = engine.key_hash(&key);
    Ok(hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Under another name first, so that a power cut leaves all of it or nothing.
fn write(folder: &Path, value: &str) -> io::Result<()> {
    let draft = folder.join(DRAFT);
    let mut file = File::create(&draft)?;
    file.write_all(value.as_bytes())?;
    file.sync_all()?;
    fs::rename(draft, folder.join(NAME))?;
    File::open(folder)?.sync_all()
}
