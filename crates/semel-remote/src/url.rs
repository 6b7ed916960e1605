//! Parses parts of a URL. Errors never quote the part, which may be a password.

/// Decodes the `%` escapes of a part.
///
/// # Errors
///
/// The rule that the part breaks.
pub fn decoded(text: &str) -> Result<String, &'static str> {
    let (mut out, mut bytes) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16)?.try_into().ok();
        let both: Option<(u8, u8)> = digit().zip(digit());
        let (high, low) = both.ok_or("a % is not followed by two hex digits")?;
        out.push((high << 4) | low);
    }
    String::from_utf8(out).map_err(|_| "a part is not UTF-8")
}

/// Parses `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT`. The port is `default` if there is none.
///
/// # Errors
///
/// The rule that the text breaks.
pub fn host_and_port(host: &str, default: u16) -> Result<(String, u16), &'static str> {
    let (name, port) = match host.rfind(':').filter(|at| host.rfind(']') < Some(*at)) {
        Some(at) => (
            &host[..at],
            host[at + 1..].parse().map_err(|_| "the port is not a number from 0 to 65535")?,
        ),
        None => (host, default),
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() {
        return Err("the host is missing");
    }
    Ok((name.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_nothing_else_is_changed() {
        assert_eq!(decoded("p%40ss+%c3%B6").as_deref(), Ok("p@ss+ö"));
        for bad in ["%", "%4", "%4g", "%+5", "%%40", "%ff"] {
            assert!(decoded(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_host_may_name_its_port() {
        for (host, name, port) in
            [("a", "a", 1), ("a:2", "a", 2), ("[::1]", "::1", 1), ("[::1]:2", "::1", 2)]
        {
            assert_eq!(host_and_port(host, 1), Ok((name.to_owned(), port)));
        }
        for bad in ["", ":2", "a:x", "a:65536", "[]"] {
            assert!(host_and_port(bad, 1).is_err(), "{bad}");
        }
    }
}
