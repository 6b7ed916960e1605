//! The requests that all sides get, and the answer that all have to return.

use semel_bench::http::{BLANK, LoadRequest};

use crate::{options::GatewayBenchOptions, side::GatewayWorkload};

/// The path of orders.
pub(crate) const ORDER: &str = "/orders/7";

/// The bytes of a request.
pub(crate) fn request(workload: GatewayWorkload, options: &GatewayBenchOptions) -> LoadRequest {
    let (body, answer) = (json(options.body), json(options.answer));
    match workload {
        GatewayWorkload::Get => LoadRequest::get(ORDER, &answer),
        GatewayWorkload::UnKeyed => LoadRequest::post(ORDER, "", &body, &answer),
        GatewayWorkload::FirstSeen | GatewayWorkload::Replay => {
            let key = format!("idempotency-key: {BLANK}\r\n");
            LoadRequest::post(ORDER, &key, &body, &answer)
        }
    }
}

/// A JSON document of this many bytes.
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
