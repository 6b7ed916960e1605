//! From a URL to a store, in one place for the library and the command.

mod choice;
mod examine;
#[cfg(feature = "embedded")]
mod folder;
mod from_url;
mod open;
mod options;
mod server;
mod url;

pub use examine::Examined;
pub use from_url::FromUrl;
pub use options::StoreOptions;
pub use url::StoreUrl;
