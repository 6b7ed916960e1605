//! What `/readyz` needs beside the store: healthy requests and, if configured, reachable upstreams.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use semel_service::{
    admin::{Readiness, ReadinessCheck},
    settings::GatewayConfig,
};

use super::{
    pipeline::RequestPipeline, proxy::ConnectionPool, store_health::StoreHealth,
    upstream_probe::first_unreachable,
};

/// What `/readyz` needs beside the store.
pub(super) struct GatewayReadiness {
    health: StoreHealth,
    /// The upstreams that have to be reachable.
    upstreams: Vec<Arc<ConnectionPool>>,
}

impl GatewayReadiness {
    pub(super) fn new(config: &GatewayConfig, pipeline: &RequestPipeline) -> Self {
        let needs_upstreams = config.admin.as_ref().is_some_and(|it| it.ready_needs_upstreams);
        let upstreams = if needs_upstreams { pipeline.proxy.pools().to_vec() } else { Vec::new() };
        Self { health: pipeline.health.clone(), upstreams }
    }
}

impl ReadinessCheck for GatewayReadiness {
    fn observed(&self) -> Readiness {
        match self.health.is_healthy() {
            true => Ok(()),
            false => Err("requests cannot use the store".into()),
        }
    }

    fn check(&self) -> BoxFuture<'_, Readiness> {
        Box::pin(async {
            match first_unreachable(&self.upstreams).await {
                None => Ok(()),
                Some(pool) => Err(format!("upstream {} cannot be reached", pool.name()).into()),
            }
        })
    }
}
