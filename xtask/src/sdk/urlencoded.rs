//! Fields of a URL-encoded form, as the SDKs send them: `metadata[order]=…`, name and value percent-encoded.

/// The value of the field called `name`.
pub(crate) fn field(body: &[u8], name: &str) -> Option<String> {
    let pairs = body.split(|byte| *byte == b'&');
    pairs.into_iter().find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        (decoded(&pair[..at]) == name).then(|| decoded(&pair[at + 1..]))
    })
}

fn decoded(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, tail) {
            (b'%', [high, low, tail @ ..]) => {
                rest = tail;
                bytes.push(digit(*high) * 16 + digit(*low));
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        // The SDKs send no other digits; a wrong value matches no field.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_raw_and_encoded() {
        for body in ["amount=1&metadata[order]=a-1", "metadata%5Border%5d=a%2D1&amount=1"] {
            assert_eq!(field(body.as_bytes(), "metadata[order]").as_deref(), Some("a-1"));
        }
        assert_eq!(field(b"name=Jane+Doe", "name").as_deref(), Some("Jane Doe"));
        assert_eq!(field(b"name", "name"), None);
        assert_eq!(field(b"", "name"), None);
    }
}
