//! The subject of a letter.

/// The subject of the letter with this id: ids may contain dots and wildcards, which are escaped.
pub(super) fn subject_of(prefix: &str, id: &str) -> String {
    let mut subject = format!("{prefix}.");
    for byte in id.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' => subject.push(char::from(byte)),
            _ => subject.push_str(&format!("%{byte:02X}")),
        }
    }
    subject
}

/// True if a stream with the subject `captured` stores all messages to `prefix.ID`.
pub(super) fn captures(captured: &str, prefix: &str) -> bool {
    let mut captured = captured.split('.');
    for own in prefix.split('.').map(Some).chain([None]) {
        match (captured.next(), own) {
            (Some(">"), _) => return true,
            (Some("*"), _) => {}
            (Some(part), Some(own)) if part == own => {}
            // Only a wildcard captures all ids.
            (Some(_) | None, _) => return false,
        }
    }
    captured.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_part_of_the_subject() {
        assert_eq!(subject_of("dead", "6f2c-A_1"), "dead.6f2c-A_1");
        assert_eq!(subject_of("a.b", "x.y/*> ö%"), "a.b.x%2Ey%2F%2A%3E%20%C3%B6%25");
    }

    #[test]
    fn a_stream_has_to_capture_all_letters() {
        for captured in ["dead.orders.>", "dead.>", ">", "dead.orders.*", "dead.*.*", "*.orders.>"]
        {
            assert!(captures(captured, "dead.orders"), "{captured}");
        }
        for captured in
            ["dead.orders", "dead.*", "dead.other.>", "dead.orders.*.*", "dead.orders.x", "dead"]
        {
            assert!(!captures(captured, "dead.orders"), "{captured}");
        }
    }
}
