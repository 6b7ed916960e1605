//! nginx from Debian, for the gateway's benchmark, which starts it with its own settings.

use std::path::PathBuf;

use semel_servers::{Install, on_path};

pub(crate) const NGINX: Install = Install::Debian { package: "nginx", find };

/// `/usr/sbin` is in the search path of root only.
fn find() -> Option<PathBuf> {
    on_path("nginx")
        .or_else(|| Some(PathBuf::from("/usr/sbin/nginx")).filter(|file| file.is_file()))
}
