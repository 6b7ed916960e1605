//! Requests to JetStream's API, without the store.

use serde_json::{Value, json};

/// Sends one request to JetStream's API.
pub(crate) async fn api_request(url: &str, api: &str, body: Value) -> Value {
    let client = async_nats::connect(url).await.unwrap();
    let reply = client.request(format!("$JS.API.{api}"), body.to_string().into()).await.unwrap();
    serde_json::from_slice(&reply.payload).unwrap()
}

/// Makes a fit bucket, with the settings in `change` instead.
pub(crate) async fn make_bucket(url: &str, bucket: &str, change: Value) {
    let mut config = json!({
        "name": format!("KV_{bucket}"), "subjects": [format!("$KV.{bucket}.>")], "storage": "file",
        "retention": "limits", "discard": "new", "num_replicas": 1, "max_msgs_per_subject": 1,
        "allow_rollup_hdrs": true, "allow_direct": true, "deny_delete": true, "allow_msg_ttl": true,
    });
    config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let made = api_request(url, &format!("STREAM.CREATE.KV_{bucket}"), config).await;
    assert_eq!(made["error"], Value::Null, "{made}");
}
