//! Checks the upstreams and the routes.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use matchit::{InsertError, Router};

use super::{
    build::ConfigBuilder,
    config::{RouteConfig, UpstreamConfig},
    field_names::closest_name,
    listeners::is_gateway_itself,
    origin::SettingOrigin,
    path::canonical_path,
    problem::SettingProblem,
    raw::{RouteFields, UpstreamFields},
    value::{RouteMatch, Secret, UpstreamUrl},
};

impl ConfigBuilder<'_> {
    /// The default upstream first, if there is one, then the others by name.
    pub(super) fn upstreams(&mut self) -> Vec<UpstreamConfig> {
        let settings = self.settings;
        let mut named: BTreeMap<&str, &UpstreamFields> =
            settings.upstreams.iter().map(|(name, fields)| (name.as_str(), fields)).collect();
        let own = named.remove(UpstreamConfig::DEFAULT);
        let mut upstreams: Vec<_> = self.default_upstream(own).into_iter().collect();
        for (name, fields) in named {
            let path = format!("upstreams.{name}");
            let url_path = format!("{path}.url");
            match &fields.url {
                Some(url) => upstreams.extend(self.upstream(name, &url_path, url, fields)),
                None if self.origins.of(&url_path) != SettingOrigin::Default => {} // unreadable, and noted
                None => self.problem(&path, "has no url; add url = \"http://HOST:PORT\""),
            }
        }
        upstreams
    }

    /// `upstream` is short for `url` of [upstreams.default], and its flag overrides that url.
    fn default_upstream(&mut self, own: Option<&UpstreamFields>) -> Option<UpstreamConfig> {
        let short = self.settings.gateway.upstream.as_ref();
        let fields = own.cloned().unwrap_or_default();
        let (url, path) = match (short, &fields.url) {
            (Some(_), Some(_))
                if matches!(self.origins.of("upstream"), SettingOrigin::File { .. }) =>
            {
                self.problem("upstream", "is set beside [upstreams.default] url; keep one of them");
                return None;
            }
            (Some(url), _) => (url, "upstream"),
            (None, Some(url)) => (url, "upstreams.default.url"),
            (None, None) => {
                self.no_upstream(own.is_some());
                return None;
            }
        };
        self.upstream(UpstreamConfig::DEFAULT, path, url, &fields)
    }

    fn no_upstream(&mut self, has_section: bool) {
        let unread = ["upstream", "upstreams.default.url"].map(|path| self.origins.of(path));
        if unread != [SettingOrigin::Default, SettingOrigin::Default] {
            return; // It is set, and its problem is noted.
        }
        if has_section {
            self.problem("upstreams.default", "has no url; add url = \"http://HOST:PORT\"");
        } else if !self.demo() && self.settings.routes.is_empty() {
            self.problem("upstream", NO_UPSTREAM);
        }
    }

    fn upstream(
        &mut self,
        name: &str,
        path: &str,
        url: &Secret,
        fields: &UpstreamFields,
    ) -> Option<UpstreamConfig> {
        let url: UpstreamUrl =
            url.0.parse().map_err(|what: String| self.problem(path, what)).ok()?;
        if is_gateway_itself(self.listen(), &url.authority) {
            let fix = "name the service behind it, or choose another address with --listen";
            self.problem(path, format!("is where the gateway itself listens; {fix}"));
        }
        Some(UpstreamConfig {
            name: name.to_owned(),
            authority: url.authority,
            base: url.base,
            preserve_host: fields.preserve_host.unwrap_or_default(),
        })
    }

    /// The routes in the order of the file.
    pub(super) fn routes(&mut self, upstreams: &[UpstreamConfig]) -> Vec<RouteConfig> {
        let settings = self.settings;
        let mut declared = DeclaredRoutes::default();
        let routes = settings.routes.iter().enumerate();
        routes
            .filter_map(|(number, fields)| self.route(number, fields, upstreams, &mut declared))
            .collect()
    }

    fn route(
        &mut self,
        number: usize,
        fields: &RouteFields,
        upstreams: &[UpstreamConfig],
        declared: &mut DeclaredRoutes,
    ) -> Option<RouteConfig> {
        let path = format!("routes.{number}");
        let upstream = self.upstream_of(&path, fields, upstreams);
        let policy = self.policy_of(&path, fields);
        let Some(matching) = &fields.target.matching else {
            if self.origins.of(&format!("{path}.match")) == SettingOrigin::Default {
                self.at(&path, "the route has no match; add match = \"POST /refunds/{id}\"");
            }
            return None;
        };
        if let Err(what) = declared.add(matching) {
            self.at(&format!("{path}.match"), what);
        }
        Some(RouteConfig {
            method: matching.method.clone(),
            template: matching.template.clone(),
            upstream,
            policy,
        })
    }

    fn upstream_of(
        &mut self,
        path: &str,
        fields: &RouteFields,
        upstreams: &[UpstreamConfig],
    ) -> Option<usize> {
        let Some(name) = &fields.target.upstream else {
            self.check_default(path);
            return None;
        };
        let found = upstreams.iter().position(|upstream| upstream.name == *name);
        // An upstream with a bad url is not in `upstreams`; its problem is noted.
        let noted = self.origins.of(&format!("upstreams.{name}")) != SettingOrigin::Default;
        if found.is_none() && !noted {
            let names = self.settings.upstreams.keys().map(String::as_str);
            let fix = match closest_name(name, names) {
                Some(name) => format!("did you mean {name:?}?"),
                None => format!("add a section [upstreams.{name}] with its url"),
            };
            self.at(&format!("{path}.upstream"), format!("there is no upstream {name:?}; {fix}"));
        }
        found
    }

    /// A route without an upstream needs the default one.
    fn check_default(&mut self, path: &str) {
        let there = self.settings.gateway.upstream.is_some()
            || self.settings.upstreams.contains_key(UpstreamConfig::DEFAULT)
            || self.origins.of("upstream") != SettingOrigin::Default;
        if !there && !self.demo() {
            let fix = "add upstream = \"NAME\" to it, or a default upstream at the top of the file";
            self.at(path, format!("the route has no upstream, and there is no default one; {fix}"));
        }
    }

    fn policy_of(&mut self, path: &str, fields: &RouteFields) -> Option<semel::http::RoutePolicy> {
        let method = fields.target.matching.as_ref().and_then(|matching| matching.method.as_ref());
        // The layer protects POST, PUT, PATCH and DELETE by default, and other methods only on a route that names them.
        let protected_by_name = method.is_some_and(|method| {
            !method.is_safe()
                && ![Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
        });
        if fields.policy.is_empty() && !protected_by_name {
            return None;
        }
        self.policy(path, &fields.policy.over(&self.settings.policy))
    }

    /// Notes a problem of a route. The line shows which route it is.
    fn at(&mut self, path: &str, what: impl Into<String>) {
        self.problems.push(SettingProblem::new(self.origins.of(path), what));
    }
}

/// The routes that were declared so far.
#[derive(Default)]
struct DeclaredRoutes {
    routes: BTreeSet<String>,
    /// Templates by their canonical spelling.
    templates: BTreeMap<String, String>,
    router: Router<()>,
}

impl DeclaredRoutes {
    /// Templates of all methods share one tree: two names for one segment are a mistake.
    fn add(&mut self, matching: &RouteMatch) -> Result<(), String> {
        if !self.routes.insert(matching.to_string()) {
            return Err(format!("the route {matching} is there twice; remove one"));
        }
        let (template, normal) =
            (&matching.template, canonical_path(&matching.template).into_owned());
        match self.templates.insert(normal.clone(), template.clone()) {
            Some(first) if first == *template => return Ok(()),
            Some(first) => {
                return Err(format!(
                    "{template} and {first} are one path in two spellings; write it the same in both"
                ));
            }
            None => {}
        }
        match self.router.insert(normal, ()) {
            Ok(()) => Ok(()),
            Err(InsertError::Conflict { with }) => Err(format!(
                "{template} and {with} match the same paths; give their parameters the same names"
            )),
            Err(InsertError::InvalidParamSegment) => {
                Err("a segment has one parameter, and text only before it; write /a/{id}/b".into())
            }
            Err(InsertError::InvalidCatchAll) => {
                Err("{*name} stands for the rest of the path; put it last, after a slash".into())
            }
            Err(error) => Err(format!(
                "{error}; write {{name}} for a segment and {{*name}} for the rest of the path"
            )),
        }
    }
}

const NO_UPSTREAM: &str = "\
no upstream: the gateway needs a service to stand in front of. Add --upstream http://HOST:PORT, set \
SEMEL_UPSTREAM, or write upstream = \"http://HOST:PORT\" in semel.toml; to see it work without one, use --demo";
