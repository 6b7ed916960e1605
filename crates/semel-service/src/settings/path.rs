//! The spelling in which paths and templates are compared.

use std::borrow::Cow;

use semel::http::normal_path;

/// The canonical spelling of a path or template: [`normal_path`] without empty segments, which many upstreams ignore.
/// It is for comparison only: the upstream gets the path as the client sent it.
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    let slashes = path.contains("//") || (path.len() > 1 && path.ends_with('/'));
    match normal_path(path) {
        text if !slashes => text,
        text => {
            let segments = text.split('/').filter(|segment| !segment.is_empty());
            let path = segments.fold(String::new(), |path, segment| path + "/" + segment);
            Cow::Owned(if path.is_empty() { "/".to_owned() } else { path })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_normal_spelling() {
        for (path, text) in [
            ("/a", "/a"),
            ("/%61%2f%7e", "/a%2F~"),
            ("//a///b//", "/a/b"),
            ("/a/", "/a"),
            ("/", "/"),
        ] {
            assert_eq!(canonical_path(path), text, "{path}");
        }
    }
}
