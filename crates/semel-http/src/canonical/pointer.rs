//! JSON pointers (RFC 6901) to values that a fingerprint leaves out.

use semel_core::{Error, Result};

/// A value in a document: a member of an object by its name, or an element of an array by its index in the array
/// as sent. A pointer to a value that the document does not have is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pointer(Box<[PointerStep]>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PointerStep {
    name: Box<str>,
    index: Option<usize>,
}

impl Pointer {
    /// Reads a pointer such as `/payment/sent_at`, or says which rule it broke.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let Some(steps) = text.strip_prefix('/') else {
            return Err(Error::invalid(if text.is_empty() {
                "JSON pointer: is empty, which names the whole body; name a field, such as /sent_at"
                    .to_owned()
            } else {
                format!(
                    "JSON pointer {text:?}: does not start with a slash; write it as \"/{text}\""
                )
            }));
        };
        steps.split('/').map(PointerStep::parse).collect::<Result<_>>().map(Self)
    }

    pub(super) fn steps(&self) -> &[PointerStep] {
        &self.0
    }
}

impl PointerStep {
    fn parse(text: &str) -> Result<Self> {
        let (mut parts, mut name) = (text.split('~'), String::new());
        name.extend(parts.next());
        for part in parts {
            name.push(match part.as_bytes().first() {
                Some(b'0') => '~',
                Some(b'1') => '/',
                _ => {
                    return Err(Error::invalid(
                        "JSON pointer: has a ~ that escapes nothing; write ~ as ~0, and / inside a \
                         name as ~1",
                    ));
                }
            });
            name.push_str(&part[1..]);
        }
        Ok(Self { index: index(&name), name: name.into_boxed_str() })
    }

    pub(super) fn is_member(&self, name: &str) -> bool {
        *self.name == *name
    }

    pub(super) fn is_element(&self, at: usize) -> bool {
        self.index == Some(at)
    }
}

/// An index is digits without a leading zero. `-`, the position after the last element, names no element.
fn index(name: &str) -> Option<usize> {
    let digits = name.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = name.len() > 1 && name.starts_with('0');
    if digits && !leading_zero { name.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        Pointer::parse(text).unwrap().steps().iter().map(|step| step.name.to_string()).collect()
    }

    #[test]
    fn escapes_are_read_as_the_rfc_says() {
        assert_eq!(names("/a~1b/m~0n/~01"), ["a/b", "m~n", "~1"]);
        assert_eq!(names("/"), [""]);
        assert_eq!(names("/ü//x"), ["ü", "", "x"]);
    }

    #[test]
    fn only_plain_indices_name_elements() {
        assert_eq!(index("0"), Some(0));
        assert_eq!(index("10"), Some(10));
        for name in ["", "01", "-", "+1", "1e0", "99999999999999999999999"] {
            assert_eq!(index(name), None, "{name}");
        }
    }

    #[test]
    fn the_error_for_a_bad_pointer_says_how_to_write_it() {
        for (text, advice) in [
            ("", "such as /sent_at"),
            ("a", "write it as \"/a\""),
            ("/a~", "~0"),
            ("/~2", "~1"),
            ("/~ü", "~0"),
        ] {
            let error = Pointer::parse(text).unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        }
    }
}
