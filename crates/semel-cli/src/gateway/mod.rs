//! The gateway.

use anyhow::{Result, bail};

use crate::settings::Config;

/// Serves until it is told to stop.
#[allow(clippy::unused_async)] // what replaces it serves
pub(crate) async fn run(config: Config) -> Result<()> {
    bail!("the gateway on {} is not built yet", config.listen)
}
