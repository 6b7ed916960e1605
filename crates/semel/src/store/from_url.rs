//! Makes an engine from a URL.

use semel_core::{Engine, Result};

use super::{StoreOptions, StoreUrl};

/// Makes an [`Engine`] over the store that a URL names.
///
/// ```
/// use semel::{Engine, FromUrl};
///
/// # #[tokio::main] async fn main() -> semel::Result<()> {
/// # if !cfg!(feature = "memory") { return Ok(()); }
/// let engine = Engine::from_url("memory:").await?;
/// # drop(engine);
/// # Ok(()) }
/// ```
///
/// With other settings:
///
/// ```
/// use semel::{Engine, Policy, StoreOptions, StoreUrl};
///
/// # #[tokio::main] async fn main() -> semel::Result<()> {
/// # if !cfg!(feature = "memory") { return Ok(()); }
/// let url: StoreUrl = "memory:".parse()?; // or postgres://app@db/app, redis://cache:6379, file:semel-data
/// let store = url.open(&StoreOptions { cache: Some(10_000), ..StoreOptions::default() }).await?;
/// let engine = Engine::builder().store(store).policy(Policy::financial()).build()?;
/// # drop(engine);
/// # Ok(()) }
/// ```
pub trait FromUrl: Sized {
    /// Opens the store at `url` and makes an engine over it, with default settings.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the URL names no store that is built in;
    /// otherwise as [`StoreUrl::open`].
    fn from_url(url: &str) -> impl Future<Output = Result<Self>> + Send;
}

impl FromUrl for Engine {
    async fn from_url(url: &str) -> Result<Self> {
        let store = url.parse::<StoreUrl>()?.open(&StoreOptions::default()).await?;
        Self::builder().store(store).build()
    }
}
