//! The addresses of the listeners: for clients, and for the admin listener.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::uri::Authority;

use super::{
    build::ConfigBuilder,
    config::{AdminSettings, GatewayConfig},
    origin::SettingOrigin,
    value::AdminToken,
};

impl ConfigBuilder<'_> {
    pub(super) fn listen(&self) -> SocketAddr {
        self.settings.gateway.listen.map_or(GatewayConfig::LISTEN, |it| it.0)
    }

    /// The admin listener. `clients` is the address that clients use, if there is one.
    pub(super) fn admin(&mut self, clients: Option<SocketAddr>) -> Option<AdminSettings> {
        let token = self.admin_token();
        let Some(listen) = self.settings.admin.listen.map(|it| it.0) else {
            return self.without_listener(token);
        };
        if clients.is_some_and(|clients| overlap(listen, clients)) {
            let what = format!("{listen} is what clients use (--listen); choose another port");
            self.problem("admin.listen", what);
        }
        if !listen.ip().to_canonical().is_loopback() {
            self.check_public(listen, token.as_ref());
        }
        Some(AdminSettings {
            listen: Some(listen),
            token,
            ready_needs_upstreams: self.settings.admin.ready_needs_upstreams.unwrap_or_default(),
        })
    }

    /// Without `--admin` there is no listener; the demo finds a port itself.
    fn without_listener(&mut self, token: Option<AdminToken>) -> Option<AdminSettings> {
        if self.demo() {
            return Some(AdminSettings { listen: None, token, ready_needs_upstreams: false });
        }
        if self.settings.admin.ready_needs_upstreams == Some(true) {
            self.warn("--ready-needs-upstreams has no effect without the admin listener; set --admin ADDR");
        }
        if self.has_token() {
            self.warn("the admin token has no effect without the admin listener; set --admin ADDR");
        }
        None
    }

    /// A listener that others can reach needs a token that cannot be guessed.
    fn check_public(&mut self, listen: SocketAddr, token: Option<&AdminToken>) {
        if !self.has_token() {
            let what = format!(
                "{listen} is not on loopback, so /metrics needs a token: set SEMEL_ADMIN_TOKEN or \
                 [admin] token_file, or listen on 127.0.0.1:{}",
                listen.port()
            );
            self.problem("admin.listen", what);
        }
        if token.is_some_and(AdminToken::is_short) {
            let what = format!(
                "the token is shorter than {} characters and {listen} is not on loopback: others \
                 can guess it; use random letters and digits, 32 or more",
                AdminToken::PUBLIC_BYTES
            );
            self.problem(self.token_path(), what);
        }
    }

    fn has_token(&self) -> bool {
        self.settings.admin.token.is_some() || self.settings.admin.token_file.is_some()
    }

    fn token_path(&self) -> &'static str {
        match self.settings.admin.token {
            Some(_) => "admin.token",
            None => "admin.token_file",
        }
    }

    fn admin_token(&mut self) -> Option<AdminToken> {
        let admin = &self.settings.admin;
        let secret = match (&admin.token, &admin.token_file) {
            (Some(_), Some(_))
                if matches!(self.origins.of("admin.token"), SettingOrigin::File { .. }) =>
            {
                self.problem("admin.token_file", "is set beside token; keep one of them");
                return None;
            }
            (Some(token), _) => token.0.clone().into_bytes(),
            (None, Some(file)) => self.secret_in("admin.token_file", file)?,
            (None, None) => return None,
        };
        AdminToken::new(&String::from_utf8_lossy(&secret))
            .map_err(|what| self.problem(self.token_path(), format!("the token {what}")))
            .ok()
    }
}

/// True when both addresses cannot be listened on at the same time.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let every = |it: SocketAddr| it.ip().is_unspecified();
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    let reaches = a == b || (every(one) || every(other)) && (a.is_ipv4() == b.is_ipv4());
    one.port() == other.port() && one.port() != 0 && reaches
}

/// True when a request to `upstream` would come back to `listen`, as far as the names show.
pub(super) fn is_gateway_itself(listen: SocketAddr, upstream: &Authority) -> bool {
    if upstream.port_u16().unwrap_or(80) != listen.port() {
        return false;
    }
    let host = upstream.host().trim_start_matches('[').trim_end_matches(']');
    let (own, named) = (listen.ip().to_canonical(), host.parse::<IpAddr>());
    let to = match named.map(|it| it.to_canonical()) {
        Ok(ip) => ip,
        Err(_) if host.eq_ignore_ascii_case("localhost") => Ipv4Addr::LOCALHOST.into(),
        Err(_) => return false,
    };
    // A connection to the unspecified address goes to this machine.
    let here = to.is_loopback() || to.is_unspecified();
    to == own || here && own.is_unspecified() || to.is_unspecified() && own.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn listeners_on_the_same_port_are_recognised() {
        for (one, other, expected) in [
            ("127.0.0.1:1", "127.0.0.1:1", true),
            ("0.0.0.0:1", "127.0.0.1:1", true),
            ("[::]:1", "[::1]:1", true),
            ("127.0.0.1:1", "127.0.0.1:2", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
            ("127.0.0.1:1", "127.0.0.2:1", false),
            ("0.0.0.0:1", "[::1]:1", false),
        ] {
            assert_eq!(overlap(address(one), address(other)), expected, "{one} {other}");
        }
    }

    #[test]
    fn an_upstream_that_is_the_gateway_itself_is_recognised() {
        for (listen, upstream, expected) in [
            ("127.0.0.1:8080", "127.0.0.1:8080", true),
            ("127.0.0.1:8080", "localhost:8080", true),
            ("127.0.0.1:8080", "0.0.0.0:8080", true),
            ("0.0.0.0:8080", "LocalHost:8080", true),
            ("[::]:8080", "[::1]:8080", true),
            ("0.0.0.0:80", "127.0.0.1", true),
            ("127.0.0.1:8080", "127.0.0.1:3000", false),
            ("127.0.0.1:8080", "127.0.0.2:8080", false),
            ("0.0.0.0:8080", "10.0.0.1:8080", false),
            ("127.0.0.1:8080", "payments:8080", false),
        ] {
            let own = is_gateway_itself(address(listen), &upstream.parse().unwrap());
            assert_eq!(own, expected, "{listen} {upstream}");
        }
    }
}
