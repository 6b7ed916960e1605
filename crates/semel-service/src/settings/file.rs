//! Reads semel.toml into raw settings. Every problem is noted with its line and reading goes on, so that all mistakes
//! are reported at once.

use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue, Deserializer, Error},
};

use super::{
    field_names::{closest_name, fields_of},
    origin::{SettingOrigin, SettingOrigins},
    policy::PolicyFields,
    problem::{BadSettings, SettingProblem},
    raw::{GatewayFields, RawSettings, RouteFields, RouteTarget, UpstreamFields},
    store::StoreFields,
};

/// The sections of the file.
const SECTIONS: [&str; 8] =
    ["timeouts", "client", "admin", "jwt", "log", "upstreams", "routes", "worker"];

/// The settings that were read, and the problems found.
#[derive(Debug, Default)]
pub(super) struct ParsedFile {
    pub(super) settings: RawSettings,
    pub(super) origins: SettingOrigins,
    pub(super) problems: Vec<SettingProblem>,
}

/// Reads `text`, the content of the file at `path`. Fails when it is no TOML: nothing can be read from it then.
pub(super) fn read(path: &Path, text: &str) -> Result<ParsedFile, BadSettings> {
    let mut reader = FileReader { path: path.into(), text, parsed: ParsedFile::default() };
    match DeTable::parse(text) {
        Ok(table) => reader.top(table.into_inner()),
        Err(error) => {
            reader.no_toml(&error);
            return Err(BadSettings(reader.parsed.problems));
        }
    }
    Ok(reader.parsed)
}

struct FileReader<'a> {
    path: Arc<Path>,
    text: &'a str,
    parsed: ParsedFile,
}

type TomlEntry<'a> = (Spanned<std::borrow::Cow<'a, str>>, Spanned<DeValue<'a>>);

impl<'a> FileReader<'a> {
    fn top(&mut self, table: DeTable<'a>) {
        let (gateway, store) = (fields_of::<GatewayFields>(), fields_of::<StoreFields>());
        let names = [gateway, store, fields_of::<PolicyFields>(), &SECTIONS].concat();
        let (sections, rest) = split(self.known_fields("", &names, table), &SECTIONS);
        let (gateway, rest) = split(rest, gateway);
        let (store, policy) = split(rest, store);
        self.parsed.settings.store = self.fields("", store);
        self.parsed.settings.gateway = self.fields("", gateway);
        self.parsed.settings.policy = self.fields("", policy);
        for (name, value) in sections {
            self.section(name.get_ref(), value);
        }
    }

    fn section(&mut self, name: &str, value: Spanned<DeValue<'a>>) {
        match name {
            "timeouts" => self.parsed.settings.timeouts = self.table(name, value),
            "client" => self.parsed.settings.client = self.table(name, value),
            "admin" => self.parsed.settings.admin = self.table(name, value),
            "jwt" => self.parsed.settings.jwt = self.table(name, value),
            "log" => self.parsed.settings.log = self.table(name, value),
            "upstreams" => self.parsed.settings.upstreams = self.upstreams(value),
            "routes" => self.parsed.settings.routes = self.routes(value),
            "worker" => self.parsed.settings.worker = self.table(name, value),
            other => unreachable!("{other} is not among the sections"),
        }
    }

    fn upstreams(&mut self, value: Spanned<DeValue<'a>>) -> BTreeMap<String, UpstreamFields> {
        let fix = "write a section [upstreams.NAME] for each";
        let Some(table) = self.expect(value, "upstreams", fix, into_table) else {
            return BTreeMap::new();
        };
        let mut upstreams = BTreeMap::new();
        for (name, value) in table {
            let path = format!("upstreams.{}", name.get_ref());
            self.note(&path, name.span());
            let fix = format!("write a section [{path}]");
            let Some(table) = self.expect(value, &path, &fix, into_table) else { continue };
            let table = self.known_fields(&path, fields_of::<UpstreamFields>(), table);
            upstreams.insert(name.into_inner().into_owned(), self.fields(&path, table));
        }
        upstreams
    }

    fn routes(&mut self, value: Spanned<DeValue<'a>>) -> Vec<RouteFields> {
        let fix = "write [[routes]], with two brackets, above each";
        let Some(routes) = self.expect(value, "routes", fix, into_array) else { return Vec::new() };
        routes.into_iter().enumerate().map(|(number, value)| self.route(number, value)).collect()
    }

    fn route(&mut self, number: usize, value: Spanned<DeValue<'a>>) -> RouteFields {
        let path = format!("routes.{number}");
        self.note(&path, value.span());
        let fix = "write [[routes]] above each";
        let Some(table) = self.expect(value, "routes", fix, into_table) else {
            return RouteFields::default();
        };
        let names = [fields_of::<RouteTarget>(), fields_of::<PolicyFields>()].concat();
        let (target, policy) =
            split(self.known_fields(&path, &names, table), fields_of::<RouteTarget>());
        RouteFields { target: self.fields(&path, target), policy: self.fields(&path, policy) }
    }

    fn table<T: DeserializeOwned + Default>(
        &mut self,
        path: &str,
        value: Spanned<DeValue<'a>>,
    ) -> T {
        let fix = format!("write a section [{path}]");
        let Some(table) = self.expect(value, path, &fix, into_table) else { return T::default() };
        let table = self.known_fields(path, fields_of::<T>(), table);
        self.fields(path, table)
    }

    /// Takes the value in its expected shape, or notes a problem with the fix.
    fn expect<T>(
        &mut self,
        value: Spanned<DeValue<'a>>,
        path: &str,
        fix: &str,
        take: impl FnOnce(DeValue<'a>) -> Option<T>,
    ) -> Option<T> {
        let (span, kind) = (value.span(), value.get_ref().type_str());
        let taken = take(value.into_inner());
        if taken.is_none() {
            self.problem(span, format!("{path}: is a TOML {kind}; {fix}"));
        }
        taken
    }

    /// Notes where each field is, and takes out the unknown ones.
    fn known_fields(
        &mut self,
        path: &str,
        names: &[&'static str],
        table: DeTable<'a>,
    ) -> DeTable<'a> {
        let (known, unknown) = split(table, names);
        for (name, _) in &known {
            self.note(&join(path, name.get_ref()), name.span());
        }
        for (name, value) in unknown {
            let is_table = into_table(value.into_inner()).is_some();
            let what = unknown_field(path, name.get_ref(), names, is_table);
            self.problem(name.span(), what);
        }
        known
    }

    /// Reads the fields. One that cannot be read is noted and taken out, and the others are read again.
    fn fields<T: DeserializeOwned + Default>(&mut self, path: &str, mut table: DeTable<'a>) -> T {
        loop {
            let whole = Spanned::new(0..self.text.len(), table.clone());
            let error = match T::deserialize(Deserializer::from(whole)) {
                Ok(fields) => return fields,
                Err(error) => error,
            };
            let at = error.span().unwrap_or_default().start;
            let entry = table.iter().find(|(_, value)| value.span().contains(&at));
            let Some(name) = entry.map(|(name, _)| name.get_ref().to_string()) else {
                self.failed(path, &error);
                return T::default();
            };
            self.failed(&join(path, &name), &error);
            table.remove(name.as_str());
        }
    }

    /// The TOML reader's message about a duplicate name has neither the name nor the fix.
    fn no_toml(&mut self, error: &Error) {
        let span = error.span().unwrap_or_default();
        match self.text.get(span.clone()) {
            Some(name) if error.message() == "duplicate key" => {
                self.problem(span, format!("{name}: is there twice; remove one of them"));
            }
            _ => self.failed("", error),
        }
    }

    fn failed(&mut self, path: &str, error: &Error) {
        let named = if path.is_empty() { String::new() } else { format!("{}: ", plain(path)) };
        let what = format!("{named}{}", in_plain_words(error.message()));
        self.problem(error.span().unwrap_or_default(), what);
    }

    fn problem(&mut self, span: Range<usize>, what: String) {
        let at = SettingOrigin::in_file(&self.path, self.text, span.start);
        self.parsed.problems.push(SettingProblem::new(at, what));
    }

    fn note(&mut self, path: &str, span: Range<usize>) {
        let origin = SettingOrigin::in_file(&self.path, self.text, span.start);
        self.parsed.origins.insert(path.to_owned(), origin);
    }
}

fn unknown_field(path: &str, name: &str, names: &[&str], is_table: bool) -> String {
    let field = join(path, name);
    let field = plain(&field);
    if let Some(closest) = closest_name(name, names.iter().copied()) {
        return format!("{field}: unknown field; did you mean {closest}?");
    }
    // A field below a section header belongs to the section, even if it was meant for the top.
    if !path.is_empty() && top_names().contains(&name) {
        return format!(
            "{field}: unknown field; move {name} to the top of the file, above the first section"
        );
    }
    let (tables, fields): (Vec<_>, Vec<_>) = names.iter().partition(|it| SECTIONS.contains(it));
    match is_table && path.is_empty() {
        true => format!("{field}: unknown section; known are{}", wrapped(&tables)),
        false => format!("{field}: unknown field; known here are{}", wrapped(&fields)),
    }
}

fn top_names() -> Vec<&'static str> {
    [fields_of::<GatewayFields>(), fields_of::<StoreFields>(), fields_of::<PolicyFields>()].concat()
}

/// The names in lines that fit a screen. A few names stay on the line before.
fn wrapped(names: &[&str]) -> String {
    const WIDTH: usize = 100;
    let all = names.join(", ");
    if all.len() <= WIDTH {
        return format!(" {all}");
    }
    let mut text = String::new();
    let mut line = 0;
    for (at, name) in names.iter().enumerate() {
        let comma = if at + 1 < names.len() { "," } else { "" };
        if line == 0 || line + name.len() + 2 > WIDTH {
            text.push_str("\n ");
            line = 1;
        }
        text.push_str(&format!(" {name}{comma}"));
        line += name.len() + 2;
    }
    text
}

/// The TOML reader's message, in the words of semel.toml.
fn in_plain_words(message: &str) -> String {
    let plain = message
        .replace("expected a boolean", "expected true or false, without quotes")
        .replace("expected a sequence", "expected a list such as [\"a\", \"b\"]")
        .replace("expected a string", "expected text in quotes")
        .replace("expected path string", "expected text in quotes")
        .replace('\n', ", ");
    format!("{plain}{}", did_you_mean(message))
}

/// The closest choice, for a message such as `unknown variant `a`, expected `b` or `c``.
fn did_you_mean(message: &str) -> String {
    let mut words = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown variant"), words.next()) {
        (true, Some(word)) => closest_name(word, words)
            .map_or_else(String::new, |it| format!("; did you mean `{it}`?")),
        _ => String::new(),
    }
}

/// A path as it is shown: without the number of the route, which the line replaces.
fn plain(path: &str) -> &str {
    match path.strip_prefix("routes.") {
        Some(rest) => rest.split_once('.').map_or("routes", |(_, field)| field),
        None => path,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn split<'a>(table: DeTable<'a>, names: &[&str]) -> (DeTable<'a>, DeTable<'a>) {
    let (here, there): (Vec<TomlEntry<'a>>, Vec<TomlEntry<'a>>) =
        table.into_iter().partition(|(name, _)| names.contains(&name.get_ref().as_ref()));
    (here.into_iter().collect(), there.into_iter().collect())
}

fn into_table(value: DeValue<'_>) -> Option<DeTable<'_>> {
    if let DeValue::Table(table) = value { Some(table) } else { None }
}

fn into_array(value: DeValue<'_>) -> Option<DeArray<'_>> {
    if let DeValue::Array(array) = value { Some(array) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a file, one per line.
    fn problems(text: &str) -> Vec<String> {
        let read = read(Path::new("semel.toml"), text);
        let problems = read.map_or_else(|bad| bad.0, |read| read.problems);
        problems.iter().map(ToString::to_string).collect()
    }

    fn problem(text: &str) -> String {
        let mut problems = problems(text);
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.remove(0)
    }

    #[test]
    fn unknown_fields_are_refused_at_every_level_with_the_closest_name() {
        for (text, expected) in [
            ("lisen = '127.0.0.1:1'", "semel.toml:1:1: lisen: unknown field; did you mean listen?"),
            ("\nleese = '1s'", "semel.toml:2:1: leese: unknown field; did you mean lease?"),
            (
                "[timeout]\nbody = '1s'",
                "semel.toml:1:2: timeout: unknown field; did you mean timeouts?",
            ),
            (
                "[timeouts]\nconect = '1s'",
                "semel.toml:2:1: timeouts.conect: unknown field; did you mean connect?",
            ),
            (
                "[client]\nconnection = 1",
                "semel.toml:2:1: client.connection: unknown field; did you mean connections?",
            ),
            (
                "[admin]\ntokens = 'x'",
                "semel.toml:2:1: admin.tokens: unknown field; did you mean token?",
            ),
            (
                "[jwt]\nissuer = []",
                "semel.toml:2:1: jwt.issuer: unknown field; did you mean issuers?",
            ),
            (
                "[log]\n levl = 'info'",
                "semel.toml:2:2: log.levl: unknown field; did you mean level?",
            ),
            (
                "[worker]\nhandlr = 'x'",
                "semel.toml:2:1: worker.handlr: unknown field; did you mean handler?",
            ),
            (
                "[upstreams.a]\nurls = 'x'",
                "semel.toml:2:1: upstreams.a.urls: unknown field; did you mean url?",
            ),
            (
                "[[routes]]\nmatches = '/a'",
                "semel.toml:2:1: matches: unknown field; did you mean match?",
            ),
            (
                "[[routes]]\nmatch = '/a'\n[[routes]]\nmax_boddy = '/a'",
                "semel.toml:4:1: max_boddy: unknown field; did you mean max_body?",
            ),
        ] {
            assert_eq!(problem(text), expected);
        }
        assert!(problem("[jwt]\ncolour = 1").contains("known here are issuers, audiences, leeway"));
        for (text, expected) in [
            (
                "[colour]\na = 1",
                "unknown section; known are timeouts, client, admin, jwt, log, upstreams, routes, worker",
            ),
            ("[log]\nretention = '1h'", "move retention to the top of the file"),
            ("[[routes]]\nmatch = '/a'\nlisten = 'x'", "move listen to the top of the file"),
        ] {
            assert!(
                problem(text).ends_with(expected) || problem(text).contains(expected),
                "{text}"
            );
        }
        let all = problem("colour = 1");
        assert!(all.lines().count() > 3 && all.lines().all(|it| it.len() <= 102), "{all}");
        assert!(all.contains("allow_duplicate_execution_on_failover") && !all.contains("routes"));
        assert!(problem("demo = true").contains("unknown field"));
    }

    #[test]
    fn a_bad_value_is_named_with_its_place_and_the_fix() {
        for (text, place, word) in [
            ("listen = '8080'", "semel.toml:1:10: listen: ", "write IP:PORT"),
            ("lease = 30", "semel.toml:1:9: lease: ", "its unit"),
            ("lease = '30'", "semel.toml:1:9: lease: ", "its unit"),
            ("lease = true", "semel.toml:1:9: lease: ", "expected a duration such as"),
            ("max_body = '1MB'", "semel.toml:1:12: max_body: ", "KiB, MiB or GiB"),
            ("buffer = -1", "semel.toml:1:10: buffer: ", "KiB, MiB or GiB"),
            ("principal = 'me'", "semel.toml:1:13: principal: ", "write anonymous, authorization"),
            ("mode = 'on'", "semel.toml:1:8: mode: ", "`enforce`, `observe`, `off`"),
            ("mode = 'enforc'", "semel.toml:1:8: mode: ", "did you mean `enforce`?"),
            ("preset = 'finacial'", "semel.toml:1:10: preset: ", "did you mean `financial`?"),
            ("principal = 'anonymos'", "semel.toml:1:13: principal: ", "did you mean anonymous?"),
            ("key_from = '$.payment.id'", "semel.toml:1:12: key_from: ", "write \"/payment/id\""),
            ("on_lost_owner = 'run'", "semel.toml:1:17: on_lost_owner: ", "`rerun` or `hold`"),
            ("store_down = 'no'", "semel.toml:1:14: store_down: ", "`refuse` or `run`"),
            ("server_errors = ''", "semel.toml:1:17: server_errors: ", "`retry` or `final`"),
            ("preset = 'events'", "semel.toml:1:10: preset: ", "`api`, `financial`, `saga`"),
            ("mismatch_status = 400", "semel.toml:1:19: mismatch_status: ", "409 or 422"),
            ("max_attempts = 0", "semel.toml:1:16: max_attempts: ", "from 1 to"),
            (
                "require_key = 'yes'",
                "semel.toml:1:15: require_key: ",
                "true or false, without quotes",
            ),
            ("namespace = 5", "semel.toml:1:13: namespace: ", "expected text in quotes"),
            (
                "hash_secret_file = 5",
                "semel.toml:1:20: hash_secret_file: ",
                "expected text in quotes",
            ),
            ("[jwt]\nissuers = 'a'", "semel.toml:2:11: jwt.issuers: ", "a list such as"),
            ("key_from = 'id'", "semel.toml:1:12: key_from: ", "\"/id\""),
            ("leave_out = ['/a', 'b']", "semel.toml:1:20: leave_out: ", "\"/b\""),
            ("keep_headers = ['set-cookie']", "semel.toml:1:17: keep_headers: ", "leave it out"),
            ("[log]\nlevel = 'loud'", "semel.toml:2:9: log.level: ", "`info`"),
            ("[log]\nformat = 'xml'", "semel.toml:2:10: log.format: ", "`text` or `json`"),
            ("[client]\nconnections = 'x'", "semel.toml:2:15: client.connections: ", "from 1 to"),
            ("[admin]\ntoken = 12345", "semel.toml:2:9: admin.token: ", "in quotes"),
            ("[[routes]]\nmatch = 'post /a'", "semel.toml:2:9: match: ", "write POST"),
            ("[[routes]]\nmatch = 'a'", "semel.toml:2:9: match: ", "start with a slash"),
            ("[[routes]]\nlease = '1'", "semel.toml:2:9: lease: ", "its unit"),
        ] {
            let problem = problem(text);
            assert!(problem.starts_with(place) && problem.contains(word), "{text}: {problem}");
            assert!(!problem.contains("12345"), "{problem}");
        }
    }

    #[test]
    fn a_part_of_another_shape_is_refused_with_the_right_one() {
        for (text, fix) in [
            ("timeouts = '5s'", "write a section [timeouts]"),
            ("upstreams = 'a'", "write a section [upstreams.NAME]"),
            ("upstreams.a = 'http://a'", "write a section [upstreams.a]"),
            ("[routes]\nmatch = '/a'", "write [[routes]], with two brackets"),
            ("routes = ['/a']", "write [[routes]] above each"),
        ] {
            assert!(problem(text).contains(fix), "{}", problem(text));
        }
    }

    #[test]
    fn a_toml_syntax_error_is_reported_with_its_line() {
        for (text, place) in [
            ("listen = 'a'\nlease = 30s", "semel.toml:2:"),
            ("listen =", "semel.toml:1:"),
            ("lease = '1s'\n\nlease = '2s'", "semel.toml:3:"),
            ("[log\nlevel = 'info'", "semel.toml:1:"),
        ] {
            assert!(problem(text).starts_with(place), "{}", problem(text));
        }
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let found =
            problems("leese = '1s'\nwait = 1\nretention = ''\n[log]\nlevel = 1\n[[routes]]\na = 1");
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn good_fields_are_kept_beside_bad_ones() {
        let read = read(Path::new("semel.toml"), "lease = 1\nwait = '1s'").unwrap();
        assert_eq!(read.settings.policy.wait, Some("1s".parse().unwrap()));
        assert_eq!(read.origins.of("wait").to_string(), "semel.toml:2:1");
    }
}
