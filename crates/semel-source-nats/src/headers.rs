//! Headers as NATS carries them: text lines, of which the server itself obeys those that begin with `Nats-`.

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use semel_core::Header;

/// The id by which a stream recognises a message that is published again.
pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";

/// Holds a header that NATS would change or obey, as `name=value` with percent signs for all unusual bytes.
const ESCAPED: &str = "Semel-Escaped-Header";

/// The headers of a delivery. The driver loses the order between names, so they are sorted; values with the same name
/// keep their order.
pub(crate) fn from_map(map: Option<&HeaderMap>) -> Vec<Header> {
    let mut headers = Vec::new();
    for (name, values) in map.iter().flat_map(|map| map.iter()) {
        let name: &str = name.as_ref();
        headers.extend(values.iter().map(|value| Header {
            name: name.to_owned(),
            value: Bytes::copy_from_slice(value.as_str().as_bytes()),
        }));
    }
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    headers
}

/// Parses the header block of a stored message. Lines that are no header are left out.
pub(crate) fn parse(block: &[u8]) -> Vec<Header> {
    let lines = block.split(|byte| *byte == b'\n').skip(1);
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let header = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&line[..colon]).ok()?.trim().to_owned();
        Some(Header { name, value: Bytes::copy_from_slice(line[colon + 1..].trim_ascii()) })
    };
    lines.filter_map(header).collect()
}

/// True for a header that the server obeys when a message is published, such as a condition or a rollup.
pub(crate) fn is_instruction(name: &str) -> bool {
    name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nats-"))
}

/// Appends a header, unless NATS cannot carry it. True if it was appended.
pub(crate) fn append(map: &mut HeaderMap, name: &str, value: &[u8]) -> bool {
    let Some((name, value)) = line(name, value) else { return false };
    map.append(name, value);
    true
}

/// The header as NATS carries it. `None` if it would not arrive unchanged.
fn line(name: &str, value: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let value = std::str::from_utf8(value).ok()?;
    // A receiver trims values.
    if name.is_empty() || value.trim() != value {
        return None;
    }
    Some((name.parse().ok()?, value.parse().ok()?))
}

/// Appends a header of a message that is stored and not sent on. What NATS cannot carry, or would obey, is escaped:
/// a `Nats-Rollup` in a dead letter would remove other dead letters.
pub(crate) fn append_escaped(map: &mut HeaderMap, name: &str, value: &[u8]) {
    let is_reserved = is_instruction(name) || name.eq_ignore_ascii_case(ESCAPED);
    if is_reserved || !append(map, name, value) {
        map.append(ESCAPED, format!("{}={}", escaped(name.as_bytes()), escaped(value)));
    }
}

/// The headers that were written by [`append_escaped`].
pub(crate) fn unescaped(headers: Vec<Header>) -> Vec<Header> {
    let original = |header: Header| {
        if !header.name.eq_ignore_ascii_case(ESCAPED) {
            return header;
        }
        original_header(&header.value).unwrap_or(header)
    };
    headers.into_iter().map(original).collect()
}

fn original_header(text: &[u8]) -> Option<Header> {
    let (name, value) = std::str::from_utf8(text).ok()?.split_once('=')?;
    let name = String::from_utf8(unescaped_bytes(name)?).ok()?;
    Some(Header { name, value: unescaped_bytes(value)?.into() })
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'%' | b'=' => text.push_str(&format!("%{byte:02X}")),
            b'!'..=b'~' => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn unescaped_bytes(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: &[u8]) -> Header {
        Header { name: name.to_owned(), value: Bytes::copy_from_slice(value) }
    }

    #[test]
    fn a_header_block_keeps_its_order_and_repeated_names() {
        let block = b"NATS/1.0\r\nB: 2\r\nA:1\r\nB:  3 \r\nnonsense\r\nC:x:y\r\n\r\n";
        let names = [("B", "2"), ("A", "1"), ("B", "3"), ("C", "x:y")];
        let expected: Vec<_> = names.iter().map(|(n, v)| header(n, v.as_bytes())).collect();
        assert_eq!(parse(block), expected);
        assert!(parse(b"").is_empty());
    }

    #[test]
    fn every_header_survives_in_a_stored_message() {
        let headers = [
            header("Plain", b"value"),
            header("Nats-Rollup", b"all"),
            header("nats-msg-id", b"order=42%"),
            header("Two", b"lines\r\nNats-Rollup: all"),
            header("Binary", b"\xff\x00"),
            header("Spaces", b" around "),
            header("with space", b"x"),
            header("", b"no name"),
            header("Empty", b""),
            header(ESCAPED, b"x=y"),
        ];
        let mut map = HeaderMap::new();
        for Header { name, value } in &headers {
            append_escaped(&mut map, name, value);
        }
        assert!(map.iter().all(|(name, _)| !is_instruction(name.as_ref())));
        let mut found = unescaped(from_map(Some(&map)));
        let (mut expected, key) = (headers.to_vec(), |it: &Header| it.name.clone());
        found.sort_by_key(key);
        expected.sort_by_key(key);
        assert!(found == expected);
    }

    #[test]
    fn what_is_not_escaped_is_left_as_it_is() {
        for text in [&b"no equals sign"[..], b"a=%", b"a=%zz"] {
            let foreign = vec![header(ESCAPED, text)];
            assert!(unescaped(foreign.clone()) == foreign);
        }
    }
}
