//! The URL of a server: one form for the driver, and one without secrets to print.

use std::fmt;

use semel_core::{Error, Result};

/// The URL of a server, and the parameters in it that are for semel.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ServerUrl<const N: usize> {
    /// For the driver. Never printed.
    pub(super) url: String,
    pub(super) own: [Option<String>; N],
    shown: String,
}

impl<const N: usize> ServerUrl<N> {
    /// Parses `text`. The driver does not get the parameters in `names`.
    pub(super) fn parse(text: &str, names: [&str; N]) -> Result<Self> {
        let (scheme, rest) =
            text.split_once("://").ok_or_else(|| bad("has no // after scheme:"))?;
        if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(bad("has spaces in it"));
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user, hosts) = user_and_hosts(authority)?;
        // A password that contains one of these characters ends the authority early, and would be printed.
        if tail.contains('@') {
            return Err(bad("has an @ behind the host"));
        }
        if tail.contains('#') {
            return Err(bad("has a #"));
        }
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let (own, driver) = parameters(query, names)?;
        let url = with_query(format!("{scheme}://{authority}{path}"), &driver);
        let at = user.map_or_else(String::new, |user| format!("{user}@"));
        let shown: Vec<_> =
            names.iter().zip(&own).filter_map(|(name, it)| Some((*name, it.as_deref()?))).collect();
        let shown = with_query(format!("{scheme}://{at}{hosts}{path}"), &shown);
        Ok(Self { url, own, shown })
    }
}

/// The user, if one is named, and all hosts.
fn user_and_hosts(authority: &str) -> Result<(Option<&str>, &str)> {
    let (user, hosts) = match authority.split_once('@') {
        Some((user, hosts)) => (user.split(':').next().filter(|user| !user.is_empty()), hosts),
        None => (None, authority),
    };
    if hosts.contains('@') {
        return Err(bad("has more than one @"));
    }
    match hosts.split(',').all(is_host) {
        true => Ok((user, hosts)),
        false => Err(bad("has a port that is no number")),
    }
}

/// HOST, HOST:PORT, [V6] or [V6]:PORT.
fn is_host(host: &str) -> bool {
    let port = match host.rsplit_once(']') {
        Some((_, port)) => port.strip_prefix(':').unwrap_or("0"),
        None => host.split_once(':').map_or("0", |(_, port)| port),
    };
    port.parse::<u16>().is_ok()
}

type Parameters<'a, const N: usize> = ([Option<String>; N], Vec<(&'a str, &'a str)>);

/// Splits the parameters into those for semel and those for the driver.
fn parameters<'a, const N: usize>(query: &'a str, names: [&str; N]) -> Result<Parameters<'a, N>> {
    let mut own = [const { None }; N];
    let mut driver = Vec::new();
    for parameter in query.split('&').filter(|it| !it.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let Some(index) = names.iter().position(|it| *it == name) else {
            driver.push((name, value));
            continue;
        };
        if !is_name(value) {
            return Err(Error::invalid(format!(
                "?{name}= wants a name of 1 to 48 letters, digits and '_', for a prefix also '-', '.' or ':'"
            )));
        }
        if own[index].replace(value.to_owned()).is_some() {
            return Err(Error::invalid(format!("has {name} twice; write it once")));
        }
    }
    Ok((own, driver))
}

fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    (1..=48).contains(&text.len()) && text.bytes().all(good)
}

fn with_query(url: String, parameters: &[(&str, &str)]) -> String {
    let join = |url: String, (at, (name, value)): (usize, &(&str, &str))| {
        let before = if at == 0 { '?' } else { '&' };
        format!("{url}{before}{name}={value}")
    };
    parameters.iter().enumerate().fold(url, join)
}

fn bad(what: &str) -> Error {
    Error::invalid(format!(
        "not the URL of a server: it {what}; write SCHEME://USER:PASSWORD@HOST:PORT/NAME, and in a password \
         %40 for @, %2F for /, %3A for :, %3F for ?, %23 for #"
    ))
}

impl<const N: usize> fmt::Display for ServerUrl<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ServerUrl<2>> {
        ServerUrl::parse(text, ["schema", "table"])
    }

    #[test]
    fn the_driver_gets_its_parameters_and_the_password_is_not_printed() {
        for (text, url, shown) in [
            ("postgres://u:hunter2@h/d", "postgres://u:hunter2@h/d", "postgres://u@h/d"),
            ("redis://:hunter2@h:1", "redis://:hunter2@h:1", "redis://h:1"),
            ("p://u@[::1]:5/d", "p://u@[::1]:5/d", "p://u@[::1]:5/d"),
            (
                "p://u:hunter2@h1:1,h2:2/d?schema=s&sslmode=require&password=hunter2&table=t",
                "p://u:hunter2@h1:1,h2:2/d?sslmode=require&password=hunter2",
                "p://u@h1:1,h2:2/d?schema=s&table=t",
            ),
            ("p:///d?host=/run/pg&table=t", "p:///d?host=/run/pg", "p:///d?table=t"),
        ] {
            let server = parse(text).unwrap();
            assert_eq!((server.url.as_str(), server.to_string().as_str()), (url, shown));
        }
        let own = parse("p://h/d?table=t").unwrap().own;
        assert_eq!(own, [None, Some("t".to_owned())]);
    }

    #[test]
    fn a_password_that_is_not_escaped_is_refused_and_not_printed() {
        for password in ["hunter/2", "hunter?2", "hunter#2", "hunt@er2", "1/hunter2", "1?hunter2"] {
            let error = parse(&format!("postgres://u:{password}@h/d")).map(drop).unwrap_err();
            assert!(error.to_string().contains("%2F for /"), "{error}");
            assert!(!error.to_string().contains("hunt"), "{error}");
        }
    }

    #[test]
    fn a_parameter_for_semel_is_a_valid_name_and_given_once() {
        for (query, word) in [("table=", "1 to 48"), ("table=a%20b", "letters")] {
            let error = parse(&format!("p://h/d?{query}")).map(drop).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        let error = parse("p://h/d?table=a&table=b").map(drop).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
}
