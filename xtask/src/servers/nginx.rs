//! nginx from Debian. Nothing here runs it: a benchmark does, with settings of its own.

use std::path::PathBuf;

use semel_servers::{Install, on_path};

pub(crate) const NGINX: Install = Install::Debian { package: "nginx", find };

/// Where system programs are is on root's path only.
fn find() -> Option<PathBuf> {
    on_path("nginx")
        .or_else(|| Some(PathBuf::from("/usr/sbin/nginx")).filter(|file| file.is_file()))
}
