//! A certificate authority for one test, and a certificate for `localhost` and `127.0.0.1`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::command;

const SUBJECT: &str = "subjectAltName=DNS:localhost,IP:127.0.0.1";

/// The folder with the files, in PEM form.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Creates the files in `folder`.
    ///
    /// # Errors
    ///
    /// When `openssl` is missing or fails.
    pub fn make(folder: &Path) -> Result<Self> {
        let own = Self { folder: folder.to_owned() };
        let (authority, signer) = (own.authority(), folder.join("ca.key"));
        openssl(folder, &["req", "-x509", "-subj", "/CN=semel test authority"], |it| {
            it.args(["-addext", "keyUsage=critical,keyCertSign"]);
            it.arg("-keyout").arg(&signer).arg("-out").arg(&authority)
        })?;
        openssl(folder, &["req", "-x509", "-subj", "/CN=localhost", "-addext", SUBJECT], |it| {
            it.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
            it.arg("-CA").arg(&authority).arg("-CAkey").arg(&signer);
            it.arg("-keyout").arg(own.key()).arg("-out").arg(own.certificate())
        })?;
        Ok(own)
    }

    /// The certificate of the authority, for clients.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    /// The certificate of the server.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("server.crt")
    }

    /// The private key of the server.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.folder.join("server.key")
    }
}

fn openssl(
    folder: &Path,
    args: &[&str],
    files: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<()> {
    let mut openssl = Command::new("openssl");
    openssl.current_dir(folder).args(args);
    openssl.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
    command::run(files(&mut openssl).stderr(Stdio::null()))
}
