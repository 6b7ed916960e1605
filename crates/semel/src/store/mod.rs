//! Opens, examines and migrates the store that a URL names, for the library and the command.

mod examine;
#[cfg(feature = "embedded")]
mod folder;
mod from_url;
#[cfg(feature = "postgres")]
mod inbox;
mod layers;
mod migrate;
#[cfg(feature = "nats")]
mod nats;
mod open;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sealed")]
mod seal;
mod server_url;
mod store_kind;
mod url;

pub use examine::Examined;
pub use from_url::FromUrl;
pub use migrate::Migrate;
pub use options::StoreOptions;
#[cfg(feature = "sealed")]
pub use seal::SealOptions;
pub use url::StoreUrl;
