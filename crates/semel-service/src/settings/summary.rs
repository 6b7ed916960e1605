//! `semel config check`: shows the values in force, and where each came from.

use std::io::{self, Write};

use clap::ArgMatches;

use super::{
    BadSettings, GatewayConfig, LoadedSettings, PrincipalSource, SettingOrigin, SettingProblem,
    UpstreamConfig, WorkerConfig,
    raw::RouteFields,
    read_all,
    value::{DurationValue, ListenAddress, SizeValue, named},
    worker::{has_gateway, worker_beside},
};

/// The summary that is printed when nothing is wrong. A file with the section `[worker]` may be of a worker alone, and
/// `check_worker` then returns what is wrong with its URLs.
///
/// # Errors
///
/// Everything that is wrong with the settings.
pub fn summary(
    matches: &ArgMatches,
    check_worker: impl FnOnce(&WorkerConfig) -> Vec<String>,
) -> Result<String, BadSettings> {
    let gathered = read_all(matches)?;
    let worker = worker_beside(&gathered);
    let gateway = (worker.is_none() || has_gateway(&gathered)).then(|| gathered.config());
    let mut problems = Vec::new();
    let gateway = gateway.and_then(|it| it.map_err(|bad| problems.extend(bad.0)).ok());
    let worker = worker.and_then(|it| it.map_err(|bad| problems.extend(bad.0)).ok());
    let in_urls = worker.as_ref().map(check_worker).into_iter().flatten();
    problems.extend(in_urls.map(|what| SettingProblem::new(SettingOrigin::Default, what)));
    BadSettings::unless_empty(problems, ())?;
    let mut text = Vec::new();
    if let Some(config) = &gateway {
        write(&mut text, &gathered, config).expect("memory takes every byte");
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if let Some(worker) = &worker {
        text.push_str(&worker_text(worker, &gathered, gateway.is_some()));
    }
    Ok(text)
}

fn worker_text(worker: &WorkerConfig, gathered: &LoadedSettings, is_beside: bool) -> String {
    let mut text = String::new();
    if let (Some(file), false) = (&gathered.file, is_beside) {
        text.push_str(&format!("ok: {}\n", file.display()));
        // Beside a gateway, its variables would be unknown ones.
        worker.warnings.iter().for_each(|it| text.push_str(&format!("warning: {it}\n")));
    }
    let handler = worker.handler.as_ref().map_or_else(String::new, ToString::to_string);
    let store = worker.store.as_ref().map_or_else(String::new, ToString::to_string);
    let namespace = &worker.namespace;
    text + &format!("worker: ok; events go to {handler}, store {store}, namespace {namespace}\n")
}

fn write(
    out: &mut impl Write,
    gathered: &LoadedSettings,
    config: &GatewayConfig,
) -> io::Result<()> {
    match &gathered.file {
        Some(file) => writeln!(out, "ok: {}", file.display())?,
        None if config.demo => writeln!(out, "ok: the demo, with defaults, SEMEL_* and flags")?,
        None => writeln!(out, "ok: no semel.toml here; defaults, SEMEL_* and flags")?,
    }
    for warning in &config.warnings {
        writeln!(out, "warning: {warning}")?;
    }
    let rows = rows(gathered, config);
    let width = |of: fn(&SummaryRow) -> &str| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0)
    };
    let (names, values) = (width(|row| &row.0), width(|row| &row.1).min(40));
    for (name, value) in &rows {
        let origin = gathered.read.origins.of(name);
        writeln!(out, "  {name:<names$}  {value:<values$}  {origin}")?;
    }
    for (number, route) in gathered.read.settings.routes.iter().enumerate() {
        let origin = gathered.read.origins.of(&format!("routes.{number}"));
        writeln!(out, "  route {}  {origin}", route_text(route))?;
    }
    Ok(())
}

/// The name and the value of a setting.
type SummaryRow = (String, String);

fn rows(gathered: &LoadedSettings, config: &GatewayConfig) -> Vec<SummaryRow> {
    let row = |name: &str, value: String| (name.to_owned(), value);
    let mut rows = vec![
        row("listen", config.listen.to_string()),
        row("principal", principal(&config.principal)),
        row(
            "store",
            config.store.as_ref().map_or("a temporary folder".into(), ToString::to_string),
        ),
        row("namespace", config.namespace.clone()),
        row("hash_secret", secret(gathered, config)),
        row("cache", config.store_options.cache.map_or("-".into(), |it| it.to_string())),
        row("migrate", config.store_options.migrate.to_string()),
        row("connections", connections(config)),
        row("seal", seal(gathered, config)),
        row("front", second(config.store_options.front.as_ref())),
        row("failover", second(config.store_options.failover.as_ref())),
        row("compare_host", config.compare_host.to_string()),
        row("trust_forwarded", config.trust_forwarded.to_string()),
        row("shutdown_grace", DurationValue(config.shutdown_grace).to_string()),
        row("buffer", SizeValue(config.buffer_bytes).to_string()),
    ];
    rows.extend(upstreams(gathered, config));
    let policy = gathered.read.settings.policy.with_defaults();
    rows.extend(
        policy.rows().into_iter().map(|(name, value)| row(name, value.unwrap_or("-".into()))),
    );
    rows.extend(limits(config));
    rows.extend(operation(gathered, config));
    rows
}

fn upstreams(gathered: &LoadedSettings, config: &GatewayConfig) -> Vec<SummaryRow> {
    let short = gathered.read.settings.gateway.upstream.is_some();
    let named = config.upstreams.iter().map(|upstream| {
        let name = match upstream.name.as_str() {
            UpstreamConfig::DEFAULT if short => "upstream".to_owned(),
            name => format!("upstreams.{name}"),
        };
        let host = if upstream.preserve_host { ", Host preserved" } else { "" };
        (name, format!("http://{}{}{host}", upstream.authority, upstream.base))
    });
    let none = if config.demo { "the demo's" } else { "none: 404 without a route" };
    let missing =
        config.default_upstream.is_none().then(|| ("upstream".to_owned(), none.to_owned()));
    missing.into_iter().chain(named).collect()
}

fn limits(config: &GatewayConfig) -> Vec<SummaryRow> {
    let (timeouts, client) = (&config.timeouts, &config.client);
    let mut rows: Vec<_> = [
        ("timeouts.connect", timeouts.connect),
        ("timeouts.header", timeouts.header),
        ("timeouts.body", timeouts.body),
        ("timeouts.idle", timeouts.idle),
        ("client.header", client.header),
        ("client.body", client.body),
        ("client.idle", client.idle),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), DurationValue(value).to_string()))
    .collect();
    rows.push(("client.connections".to_owned(), client.connections.to_string()));
    rows
}

fn operation(gathered: &LoadedSettings, config: &GatewayConfig) -> Vec<SummaryRow> {
    let admin = config.admin.as_ref();
    let token = if admin.is_some_and(|admin| admin.token.is_some()) { "set" } else { "-" };
    let fields = &gathered.read.settings.admin;
    let from_file = fields.token.is_none() && fields.token_file.is_some();
    let token_name = if from_file { "admin.token_file" } else { "admin.token" };
    let listen = admin.map_or("off".to_owned(), |admin| match admin.listen {
        Some(address) => ListenAddress(address).to_string(),
        None => "the demo's".to_owned(),
    });
    let mut rows = vec![
        ("admin.listen".to_owned(), listen),
        (token_name.to_owned(), token.to_owned()),
        (
            "admin.ready_needs_upstreams".to_owned(),
            admin.is_some_and(|admin| admin.ready_needs_upstreams).to_string(),
        ),
        ("log.level".to_owned(), named(config.log.level)),
        ("log.format".to_owned(), named(config.log.format)),
    ];
    if let PrincipalSource::Jwt(jwt) = &config.principal {
        let any = |list: &[String]| if list.is_empty() { "any".into() } else { list.join(", ") };
        rows.push(("jwt.issuers".to_owned(), any(&jwt.issuers)));
        rows.push(("jwt.audiences".to_owned(), any(&jwt.audiences)));
        rows.push(("jwt.leeway".to_owned(), DurationValue(jwt.leeway).to_string()));
    }
    rows
}

fn principal(source: &PrincipalSource) -> String {
    match source {
        PrincipalSource::Anonymous => "anonymous".into(),
        PrincipalSource::Authorization => "authorization".into(),
        PrincipalSource::Header(name) => format!("header:{name}"),
        PrincipalSource::Jwt(jwt) => format!("{}:{}", jwt.kind.scheme(), jwt.file.display()),
    }
}

fn second(url: Option<&semel::StoreUrl>) -> String {
    url.map_or("-".into(), ToString::to_string)
}

fn connections(config: &GatewayConfig) -> String {
    config.store_options.connections.map_or("the store's default".into(), |it| it.to_string())
}

/// The names of the seal keys, and nothing else of them.
fn seal(gathered: &LoadedSettings, config: &GatewayConfig) -> String {
    let Some(seal) = &config.store_options.seal else { return "-".into() };
    let keys = seal.ring.keys();
    let unsealed = if seal.accept_unsealed { "; unsealed accepted" } else { "" };
    let from = match (&gathered.context.seal_keys, &config.seal_file) {
        (None, Some(file)) => file.display().to_string(),
        (Some(_), _) | (None, None) => format!("the keys in {}", super::SEAL_KEYS),
    };
    format!("{from}: {} seals, {} open{unsealed}", keys.seals_with(), keys.ids().count())
}

fn secret(gathered: &LoadedSettings, config: &GatewayConfig) -> String {
    match (&config.store_options.hash_secret, &gathered.context.hash_secret) {
        (None, _) => "-".into(),
        (Some(_), Some(_)) => format!("the secret in {}", super::HASH_SECRET),
        (Some(_), None) => {
            let file = gathered.read.settings.store.hash_secret_file.as_deref();
            file.map_or_else(String::new, |file| file.display().to_string())
        }
    }
}

fn route_text(route: &RouteFields) -> String {
    let mut text = route.target.matching.as_ref().map_or_else(String::new, ToString::to_string);
    let upstream = route.target.upstream.as_deref().unwrap_or(UpstreamConfig::DEFAULT);
    text.push_str(&format!(" to {upstream}"));
    for (name, value) in route.policy.spelled_out().rows() {
        if let Some(value) = value {
            text.push_str(&format!(", {name} = {value}"));
        }
    }
    text
}
