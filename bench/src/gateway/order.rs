//! The requests that all sides get, and the answer that all give.

use semel_bench::http::{BLANK, Request};

use crate::{options::Options, side::Workload};

/// Where orders are.
pub(crate) const ORDER: &str = "/orders/7";

/// The bytes of a request.
pub(crate) fn request(workload: Workload, options: &Options) -> Request {
    let (body, answer) = (json(options.body), json(options.answer));
    match workload {
        Workload::Get => Request::get(ORDER, &answer),
        Workload::UnKeyed => Request::post(ORDER, "", &body, &answer),
        Workload::FirstSeen | Workload::Replay => {
            let key = format!("idempotency-key: {BLANK}\r\n");
            Request::post(ORDER, &key, &body, &answer)
        }
    }
}

/// JSON of that many bytes.
pub(crate) fn json(bytes: usize) -> String {
    let (start, end) = (r#"{"order":7,"remark":""#, r#""}"#);
    format!("{start}{}{end}", "x".repeat(bytes.saturating_sub(start.len() + end.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_length_asked_for() {
        assert_eq!(json(128).len(), 128);
        assert_eq!(json(32).len(), 32);
    }
}
