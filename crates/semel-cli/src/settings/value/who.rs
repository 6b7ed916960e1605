//! Who a request is from, as it is written.

use std::{fmt, path::PathBuf, str::FromStr};

use http::HeaderName;

use super::text::from_text;

/// One of the four ways to know who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    Anonymous,
    Authorization,
    Header(String),
    Jwt(PathBuf),
}

impl FromStr for Principal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("anonymous", "") => Ok(Self::Anonymous),
            ("authorization", "") => Ok(Self::Authorization),
            ("header", name) => match name.parse::<HeaderName>() {
                Ok(name) => Ok(Self::Header(name.as_str().to_owned())),
                Err(_) => Err("names no header; write header:NAME, such as header:X-User".into()),
            },
            ("jwt", "") => Err("names no file; write jwt:FILE, such as jwt:keys.json".into()),
            ("jwt", file) => Ok(Self::Jwt(file.into())),
            _ => {
                Err("not a principal; write anonymous, authorization, header:NAME or jwt:FILE"
                    .into())
            }
        }
    }
}

from_text!(Principal, "\"anonymous\", \"authorization\", \"header:NAME\" or \"jwt:FILE\"");

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::Authorization => f.write_str("authorization"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Jwt(file) => write!(f, "jwt:{}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_four_principals() {
        for good in ["anonymous", "authorization", "header:x-user", "jwt:keys.json", "jwt:C:/keys"]
        {
            assert_eq!(good.parse::<Principal>().unwrap().to_string(), good);
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_fix() {
        for bad in [
            "",
            "anon",
            "Anonymous",
            "anonymous:x",
            "header",
            "header:",
            "header:x y",
            "jwt",
            "jwt:",
        ] {
            let error = bad.parse::<Principal>().unwrap_err();
            assert!(error.contains("write "), "{bad}: {error}");
        }
    }
}
