//! A well-formed request, as bytes.

/// The host of the clients' requests.
pub(crate) const HOST: &str = "shop.example";

/// A request. Its bytes can be sent whole, or in the pieces [`TestRequest::head`] and body.
#[derive(Clone, Debug)]
pub(crate) struct TestRequest {
    line: String,
    host: String,
    headers: String,
    body: Vec<u8>,
    with_length: bool,
}

impl TestRequest {
    fn new(method: &str, target: &str, with_length: bool) -> Self {
        Self {
            line: format!("{method} {target} HTTP/1.1\r\n"),
            host: HOST.to_owned(),
            headers: String::new(),
            body: Vec::new(),
            with_length,
        }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target, false)
    }

    pub(crate) fn head_of(target: &str) -> Self {
        Self::new("HEAD", target, false)
    }

    pub(crate) fn post(target: &str) -> Self {
        Self::new("POST", target, true)
    }

    pub(crate) fn method(method: &str, target: &str) -> Self {
        Self::new(method, target, true)
    }

    /// The request that most tests make: 5 EUR for order 7.
    pub(crate) fn charge(key: &str) -> Self {
        Self::post("/orders/7").key(key).body("5 EUR")
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    pub(crate) fn host(self, host: &str) -> Self {
        Self { host: host.to_owned(), ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    pub(crate) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// A request whose body the test sends in chunks itself.
    pub(crate) fn chunked(self) -> Self {
        Self { with_length: false, ..self }.header("Transfer-Encoding", "chunked")
    }

    /// Everything before the body.
    pub(crate) fn head(&self) -> Vec<u8> {
        let Self { line, host, headers, body, with_length } = self;
        let length = if *with_length {
            format!("Content-Length: {}\r\n", body.len())
        } else {
            String::new()
        };
        format!("{line}Host: {host}\r\n{headers}{length}\r\n").into_bytes()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        [self.head(), self.body.clone()].concat()
    }

    /// True if the response has no body.
    pub(crate) fn is_head(&self) -> bool {
        self.line.starts_with("HEAD ")
    }
}

impl AsRef<TestRequest> for TestRequest {
    fn as_ref(&self) -> &TestRequest {
        self
    }
}
