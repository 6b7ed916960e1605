//! The setting `principal`, as it is written.

use std::{fmt, path::PathBuf, str::FromStr};

use http::HeaderName;

use super::text::from_text;
use crate::{settings::field_names::closest_name, settings::jwt::JwtKeyKind};

/// How the gateway finds the caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PrincipalSetting {
    Anonymous,
    Authorization,
    Header(String),
    /// A file with public keys.
    Jwt(PathBuf),
    /// A file with a shared secret.
    JwtSecret(PathBuf),
}

impl FromStr for PrincipalSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("anonymous", "") => Ok(Self::Anonymous),
            ("authorization", "") => Ok(Self::Authorization),
            ("header", name) => header(name).map(Self::Header),
            ("jwt", "") => Err("names no file; write jwt:FILE, such as jwt:keys.json".into()),
            ("jwt", file) => Ok(Self::Jwt(file.into())),
            ("jwt-secret", "") => {
                Err("names no file; write jwt-secret:FILE, such as jwt-secret:secret".into())
            }
            ("jwt-secret", file) => Ok(Self::JwtSecret(file.into())),
            (word, _) => {
                let known = ["anonymous", "authorization", "header", "jwt", "jwt-secret"];
                let near = closest_name(word, known);
                let near = near.map_or_else(String::new, |it| format!("did you mean {it}? "));
                Err(format!(
                    "not a principal; {near}write anonymous, authorization, header:NAME, jwt:FILE or \
                     jwt-secret:FILE"
                ))
            }
        }
    }
}

/// A header that a proxy sets to the caller's name. Names are stored in the clear, so a credential is refused.
fn header(name: &str) -> Result<String, String> {
    let name: HeaderName = name
        .parse()
        .map_err(|_| "names no header; write header:NAME, such as header:X-User".to_owned())?;
    let what = match name.as_str() {
        "authorization" => {
            return Err("a credential is kept as a hash only; write authorization".into());
        }
        "proxy-authorization" | "cookie" | "set-cookie" => {
            "is a credential, and would be stored in the clear"
        }
        "host" | "idempotency-key" | "content-length" | "connection" | "transfer-encoding"
        | "keep-alive" | "proxy-connection" | "proxy-authenticate" | "te" | "trailer"
        | "upgrade" => "does not name the caller",
        "forwarded" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" | "via" => {
            "says where a request came from, and the gateway writes it anew"
        }
        text if text.starts_with("semel-") => "is what the gateway sends to the upstream",
        _ => return Ok(name.as_str().to_owned()),
    };
    Err(format!("{name} {what}; write authorization, jwt:FILE or a header such as header:X-User"))
}

from_text!(
    PrincipalSetting,
    "\"anonymous\", \"authorization\", \"header:NAME\", \"jwt:FILE\" or \"jwt-secret:FILE\""
);

impl fmt::Display for PrincipalSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::Authorization => f.write_str("authorization"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Jwt(file) => write!(f, "{}:{}", JwtKeyKind::Public.scheme(), file.display()),
            Self::JwtSecret(file) => {
                write!(f, "{}:{}", JwtKeyKind::Secret.scheme(), file.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_reads_back_as_it_is_written() {
        for good in [
            "anonymous",
            "authorization",
            "header:x-user",
            "header:x-forwarded-user",
            "jwt:keys.json",
            "jwt:C:/keys",
            "jwt-secret:secret",
        ] {
            assert_eq!(good.parse::<PrincipalSetting>().unwrap().to_string(), good);
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
            "jwt-secret:",
            "jwt_secret:x",
        ] {
            let error = bad.parse::<PrincipalSetting>().unwrap_err();
            assert!(error.contains("write "), "{bad}: {error}");
        }
    }

    #[test]
    fn a_header_that_does_not_name_a_caller_is_refused() {
        for (bad, word) in [
            ("header:Authorization", "write authorization"),
            ("header:Proxy-Authorization", "in the clear"),
            ("header:cookie", "in the clear"),
            ("header:Host", "does not name the caller"),
            ("header:Idempotency-Key", "does not name the caller"),
            ("header:Content-Length", "does not name the caller"),
            ("header:TE", "does not name the caller"),
            ("header:X-Forwarded-For", "where a request came from"),
            ("header:x-forwarded-host", "where a request came from"),
            ("header:X-Forwarded-Proto", "where a request came from"),
            ("header:Forwarded", "where a request came from"),
            ("header:Via", "where a request came from"),
            ("header:Semel-Token", "sends to the upstream"),
        ] {
            let error = bad.parse::<PrincipalSetting>().unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
