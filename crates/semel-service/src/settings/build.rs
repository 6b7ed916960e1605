//! Checks the raw settings and builds the configuration from them.

use std::{path::Path, time::Duration};

use super::{
    config::{ClientLimits, GatewayConfig, LogSettings, PrincipalSource, UpstreamTimeouts},
    origin::{SettingOrigin, SettingOrigins},
    policy::PolicyFields,
    problem::{BadSettings, SettingProblem},
    raw::RawSettings,
    secrets,
    value::{DurationValue, PrincipalSetting, Secret, SizeValue},
};
use crate::settings::jwt::JwtKeyKind;

/// What a command knows beside the raw settings.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandContext {
    pub(super) demo: bool,
    /// `SEMEL_HASH_SECRET`.
    pub(super) hash_secret: Option<Secret>,
    /// `SEMEL_SEAL_KEYS`.
    pub(super) seal_keys: Option<Secret>,
    pub(super) warnings: Vec<String>,
}

/// Builds the configuration from raw settings, and collects all problems.
pub(super) struct ConfigBuilder<'a> {
    pub(super) settings: &'a RawSettings,
    pub(super) origins: &'a SettingOrigins,
    pub(super) problems: Vec<SettingProblem>,
    pub(super) context: CommandContext,
}

impl<'a> ConfigBuilder<'a> {
    /// Starts with the `problems` that reading the file has found.
    pub(super) const fn new(
        settings: &'a RawSettings,
        origins: &'a SettingOrigins,
        problems: Vec<SettingProblem>,
        context: CommandContext,
    ) -> Self {
        Self { settings, origins, problems, context }
    }

    /// The configuration, or all problems.
    pub(super) fn build(mut self) -> Result<GatewayConfig, BadSettings> {
        self.check_demo();
        let gateway = &self.settings.gateway;
        let policy = self.policy("", &self.settings.policy);
        let upstreams = self.upstreams();
        let default_upstream =
            upstreams.iter().position(|it| it.name == super::UpstreamConfig::DEFAULT);
        let routes = self.routes(&upstreams);
        let store = self.store();
        let store_options = self.store_options(store.as_ref());
        self.migrates_tables(store.as_ref(), &store_options);
        let config = GatewayConfig {
            listen: self.listen(),
            namespace: self.namespace(store.as_ref()),
            store_options,
            seal_file: self.seal_file(),
            store,
            principal: self.principal(),
            policy: policy.unwrap_or_default(),
            default_upstream,
            upstreams,
            routes,
            timeouts: self.timeouts(),
            client: self.client(),
            admin: self.admin(Some(self.listen())),
            compare_host: gateway.compare_host.unwrap_or(true),
            trust_forwarded: gateway.trust_forwarded.unwrap_or_default(),
            shutdown_grace: gateway.shutdown_grace.map_or(GatewayConfig::SHUTDOWN_GRACE, |it| it.0),
            buffer_bytes: self.buffer(),
            log: self.log(),
            demo: self.context.demo,
            warnings: self.warnings(),
        };
        BadSettings::unless_empty(self.problems, config)
    }

    pub(super) const fn demo(&self) -> bool {
        self.context.demo
    }

    pub(super) fn warn(&mut self, warning: &str) {
        self.context.warnings.push(warning.to_owned());
    }

    /// Refuses settings that the demo brings itself.
    fn check_demo(&mut self) {
        let named = self.settings.upstreams.keys().next().map(|name| format!("upstreams.{name}"));
        let route = self.settings.routes.first().map(|_| "routes.0".to_owned());
        let single =
            ["upstream", "principal", "store", "mode", "mismatch_status"].map(str::to_owned);
        let all: Vec<_> = single.into_iter().chain(named).chain(route).collect();
        self.refuse_in_demo(&all);
    }

    /// Refuses these settings in a demo: what it explains would not be true.
    pub(super) fn refuse_in_demo(&mut self, paths: &[impl AsRef<str>]) {
        if !self.demo() {
            return;
        }
        for path in paths.iter().map(AsRef::as_ref) {
            if self.origins.of(path) != SettingOrigin::Default {
                let what = "is set, but the demo brings its own; leave it out, or leave --demo out";
                self.problem(path, what);
            }
        }
    }

    /// Notes a problem with the setting at `path`.
    pub(super) fn problem(&mut self, path: &str, what: impl Into<String>) {
        let at = self.origins.of(path);
        // The name of a variable or flag names the setting; a line of the file does not.
        let what = what.into();
        let what = match &at {
            SettingOrigin::File { .. } => format!("{path}: {what}"),
            SettingOrigin::Variable(_) | SettingOrigin::Flag(_) | SettingOrigin::Default => what,
        };
        self.problems.push(SettingProblem::new(at, what));
    }

    pub(super) fn secret_in(&mut self, path: &str, file: &Path) -> Option<Vec<u8>> {
        secrets::read(file).map_err(|what| self.problem(path, what)).ok()
    }

    fn principal(&mut self) -> PrincipalSource {
        match &self.settings.gateway.principal {
            Some(PrincipalSetting::Anonymous) => PrincipalSource::Anonymous,
            Some(PrincipalSetting::Authorization) => PrincipalSource::Authorization,
            Some(PrincipalSetting::Header(name)) => PrincipalSource::Header(name.clone()),
            Some(PrincipalSetting::Jwt(file)) => self.jwt(JwtKeyKind::Public, file),
            Some(PrincipalSetting::JwtSecret(file)) => self.jwt(JwtKeyKind::Secret, file),
            None => {
                if !self.context.demo && self.origins.of("principal") == SettingOrigin::Default {
                    self.problem("principal", NO_PRINCIPAL);
                }
                PrincipalSource::Anonymous
            }
        }
    }

    /// The policy at `path`. A problem is noted where the bad field was set: at `path`, or for all routes.
    pub(super) fn policy(
        &mut self,
        path: &str,
        fields: &PolicyFields,
    ) -> Option<semel::http::RoutePolicy> {
        let bad = match fields.build() {
            Ok(policy) => return Some(policy),
            Err(bad) => bad,
        };
        let own = format!("{path}.{}", bad.field);
        let at = self.origins.first(&[own, bad.field.clone(), path.to_owned()]);
        let what = match &at {
            SettingOrigin::File { .. } | SettingOrigin::Default => {
                format!("{}: {}", bad.field, bad.what)
            }
            SettingOrigin::Variable(_) | SettingOrigin::Flag(_) => bad.what,
        };
        self.problems.push(SettingProblem::new(at, what));
        None
    }

    fn timeouts(&mut self) -> UpstreamTimeouts {
        let (set, standard) = (&self.settings.timeouts, UpstreamTimeouts::default());
        UpstreamTimeouts {
            connect: self.positive("timeouts.connect", set.connect, standard.connect),
            header: self.positive("timeouts.header", set.header, standard.header),
            body: self.positive("timeouts.body", set.body, standard.body),
            // Zero is allowed: no connection is kept.
            idle: set.idle.map_or(standard.idle, |it| it.0),
        }
    }

    fn client(&mut self) -> ClientLimits {
        let (set, standard) = (&self.settings.client, ClientLimits::default());
        ClientLimits {
            header: self.positive("client.header", set.header, standard.header),
            body: self.positive("client.body", set.body, standard.body),
            idle: self.positive("client.idle", set.idle, standard.idle),
            connections: set.connections.map_or(standard.connections, |it| it.0.get() as usize),
        }
    }

    pub(super) fn positive(
        &mut self,
        path: &str,
        set: Option<DurationValue>,
        standard: Duration,
    ) -> Duration {
        if set.is_some_and(|it| it.0.is_zero()) {
            self.problem(path, "is zero; nothing could happen in time, use at least 1ms");
        }
        set.map_or(standard, |it| it.0)
    }

    fn buffer(&mut self) -> usize {
        let bytes = self.settings.gateway.buffer.map_or(GatewayConfig::BUFFER_BYTES, |it| it.0);
        /// The memory that a request takes beside its body.
        const HEAD: usize = 4096;
        let settings = self.settings;
        let routes = settings.routes.iter().map(|route| route.policy.over(&settings.policy));
        let policies = routes.chain([settings.policy.clone()]).map(|it| it.with_defaults());
        let sizes = policies.flat_map(|it| [it.max_body, it.max_response]).flatten();
        let largest = sizes.map(|it| it.0).max().unwrap_or_default().saturating_add(HEAD);
        if bytes < largest {
            let (has, least) = (SizeValue(bytes), SizeValue(largest));
            self.problem("buffer", format!("is {has}; the largest body needs at least {least}"));
        }
        bytes
    }

    pub(super) fn log(&self) -> LogSettings {
        let log = &self.settings.log;
        LogSettings { level: log.level.unwrap_or_default(), format: log.format.unwrap_or_default() }
    }

    fn warnings(&mut self) -> Vec<String> {
        let (jwt, principal) = (&self.settings.jwt, &self.settings.gateway.principal);
        let set = jwt.issuers.is_some() || jwt.audiences.is_some() || jwt.leeway.is_some();
        if set
            && !matches!(principal, Some(PrincipalSetting::Jwt(_) | PrincipalSetting::JwtSecret(_)))
        {
            self.warn(
                "the section [jwt] does nothing unless principal is jwt:FILE or jwt-secret:FILE",
            );
        }
        std::mem::take(&mut self.context.warnings)
    }
}

const NO_PRINCIPAL: &str = "\
no principal: the caller is part of every key, and how it is found has to be chosen. Add one of
  --principal authorization   the Authorization header as a whole, kept as a hash.
                              For API keys and long-lived tokens.
  --principal jwt:FILE        issuer and subject of a verified JWT; FILE holds public keys (JWKS or PEM).
                              For tokens that are renewed: the user stays the same.
  --principal jwt-secret:FILE the same for JWTs that are signed with a shared secret (HS256).
  --principal header:NAME     a header such as X-User.
                              For a proxy in front that sets it and strips it from what clients send.
  --principal anonymous       all callers share one key space, and see each other's outcomes.
                              For internal callers that trust each other.
or set SEMEL_PRINCIPAL, or principal = \"…\" in semel.toml";
