//! What an operator should know about the server and the tables. Changes nothing.

use semel_core::{Error, Finding, Result};

use crate::{
    connection::{Facts, Purpose, Session, in_time},
    error::explain,
    meta::Meta,
    names::Names,
    pooler::refuse_shared,
    settings::Settings,
};

pub(crate) async fn look(settings: Settings) -> Vec<Finding> {
    if let Err(error) = refuse_shared(&settings).await {
        return vec![bad(&error)];
    }
    let session = match Session::unchecked(&settings, Purpose::Chores, |_| {}).await {
        Ok(session) => session,
        Err(error) => return vec![bad(&error)],
    };
    let mut findings = vec![Finding::good("PostgreSQL answers")];
    of_server(&session.facts, &mut findings);
    findings.push(match in_time(&settings, of_replicas(&session)).await {
        Ok(found) => found,
        Err(error) => bad(&error),
    });
    match in_time(&settings, of_tables(&session, &settings)).await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(bad(&error)),
    }
    findings
}

fn of_server(facts: &Facts, findings: &mut Vec<Finding>) {
    let version = facts.version;
    findings.push(Finding::good(format!(
        "server version {}.{}",
        version / 10_000,
        version % 10_000
    )));
    findings.extend(facts.refusals().map(|why| with_fix(why, Finding::bad)));
    findings.extend(facts.warnings().map(|why| with_fix(why, Finding::warning)));
    if !facts.read_only {
        findings.push(Finding::good("the server is a primary"));
    }
    if facts.warnings().next().is_none() {
        let commit = &facts.synchronous_commit;
        findings.push(Finding::good(format!(
            "acknowledged means durable (synchronous_commit = {commit}, fsync = on)"
        )));
    }
}

/// Which replicas there are is not everybody's to see, but how many.
async fn of_replicas(session: &Session) -> Result<Finding> {
    let ask = "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
               count(*) FILTER (WHERE sync_state IS NULL) FROM pg_stat_replication";
    let row = session.client.query_one(ask, &[]).await.map_err(|error| explain(&error))?;
    let (all, synchronous, hidden): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    Ok(match (all, session.facts.standbys.as_str()) {
        (0, "") => Finding::good("no replicas, so no failover that could forget"),
        (_, "") => Finding::warning(
            format!(
                "{all} replicas, none of them synchronous: a failover forgets the last moments"
            ),
            "set synchronous_standby_names where that is not acceptable",
        ),
        _ if synchronous > 0 => {
            Finding::good(format!("{all} replicas, and commits wait for {synchronous} of them"))
        }
        (_, standbys) if hidden > 0 => Finding::warning(
            format!(
                "{all} replicas, and this role cannot see which of them are synchronous (synchronous_standby_names = {standbys})"
            ),
            "look as a member of pg_monitor",
        ),
        (_, standbys) => Finding::bad(
            format!(
                "commits wait for a synchronous replica, and none is connected (synchronous_standby_names = {standbys})"
            ),
            "connect one of them, or change synchronous_standby_names",
        ),
    })
}

async fn of_tables(session: &Session, settings: &Settings) -> Result<Vec<Finding>> {
    let names = &settings.names;
    let (schema, table) = (&names.schema, &names.table);
    let meta = Meta::read(&session.client, names).await?;
    if let Err(error) = meta.check_version(names) {
        return Ok(vec![bad(&error)]);
    }
    let mut findings = vec![Finding::good(format!("{schema}.{table} is up to date"))];
    findings.push(match meta.check_secret(settings.secret.as_ref()) {
        Ok(()) if meta.secret.is_none() => {
            Finding::good("no process has settled the hash secret yet")
        }
        Ok(()) => Finding::good("the hash secret is the one the fleet agreed on"),
        Err(error) => bad(&error),
    });
    findings.push(of_rights(session, names).await?);
    Ok(findings)
}

async fn of_rights(session: &Session, names: &Names) -> Result<Finding> {
    let ask = "SELECT has_table_privilege($1::text, r), quote_ident(current_user) FROM unnest($2::text[]) AS r
               UNION ALL
               SELECT has_table_privilege($3::text, r), quote_ident(current_user) FROM unnest($4::text[]) AS r";
    let (all, some) =
        (vec!["SELECT", "INSERT", "UPDATE", "DELETE"], vec!["SELECT", "INSERT", "UPDATE"]);
    let rows = session.client.query(ask, &[&names.records(), &all, &names.meta(), &some]).await;
    let rows = rows.map_err(|error| explain(&error))?;
    Ok(match rows.iter().find(|row| !row.get::<_, bool>(0)) {
        None => Finding::good("the role may do everything it needs"),
        Some(row) => {
            let (role, schema): (String, _) = (row.get(1), &names.schema);
            let (records, meta) = (names.records(), names.meta());
            let fix = format!(
                "GRANT USAGE ON SCHEMA \"{schema}\" TO {role}; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON {records} TO {role}; \
                 GRANT SELECT, INSERT, UPDATE ON {meta} TO {role};"
            );
            Finding::bad("the role may not do everything it needs", fix)
        }
    })
}

/// What is wrong and what helps are told in one sentence, divided by a semicolon.
fn with_fix(why: &str, finding: impl FnOnce(String, String) -> Finding) -> Finding {
    let (what, fix) = why.rsplit_once("; ").unwrap_or((why, "see docs/stores/postgres.md"));
    finding(what.to_owned(), fix.to_owned())
}

fn bad(error: &Error) -> Finding {
    with_fix(&error.to_string(), Finding::bad)
}
