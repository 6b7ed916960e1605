//! Checks the server and the tables for `semel doctor`. Changes nothing.

use semel_core::{Error, Finding, Result};

use crate::{
    connection::{ConnectionPurpose, PgConnection, ServerFacts, within_connect_timeout},
    error::explain,
    meta::MetaTable,
    names::PgNames,
    pooler::refuse_shared_pool,
    settings::PgSettings,
};

pub(crate) async fn check(settings: PgSettings) -> Vec<Finding> {
    if let Err(error) = refuse_shared_pool(&settings).await {
        return vec![bad(&error)];
    }
    let connection =
        match PgConnection::unchecked(&settings, ConnectionPurpose::Maintenance, |_| {}).await {
            Ok(connection) => connection,
            Err(error) => return vec![bad(&error)],
        };
    let mut findings = vec![Finding::good("PostgreSQL answers")];
    check_server(&connection.facts, &mut findings);
    findings.push(match within_connect_timeout(&settings, check_replicas(&connection)).await {
        Ok(found) => found,
        Err(error) => bad(&error),
    });
    match within_connect_timeout(&settings, check_tables(&connection, &settings)).await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(bad(&error)),
    }
    findings
}

fn check_server(facts: &ServerFacts, findings: &mut Vec<Finding>) {
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

/// A role without `pg_monitor` sees how many replicas there are, but not which of them are synchronous.
async fn check_replicas(connection: &PgConnection) -> Result<Finding> {
    let query = "SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
               count(*) FILTER (WHERE sync_state IS NULL) FROM pg_stat_replication";
    let row = connection.client.query_one(query, &[]).await.map_err(|error| explain(&error))?;
    let (all, synchronous, hidden): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    Ok(match (all, connection.facts.standbys.as_str()) {
        (0, "") => Finding::good("no replicas, so no failover that could lose commits"),
        (_, "") => Finding::warning(
            format!("{all} replicas, none of them synchronous: a failover loses the last commits"),
            "set synchronous_standby_names where that is not acceptable",
        ),
        _ if synchronous > 0 => {
            Finding::good(format!("{all} replicas, and commits wait for {synchronous} of them"))
        }
        (_, standbys) if hidden > 0 => Finding::warning(
            format!(
                "{all} replicas, and this role cannot see which of them are synchronous (synchronous_standby_names = {standbys})"
            ),
            "run the check as a member of pg_monitor",
        ),
        (_, standbys) => Finding::bad(
            format!(
                "commits wait for a synchronous replica, and none is connected (synchronous_standby_names = {standbys})"
            ),
            "connect one of them, or change synchronous_standby_names",
        ),
    })
}

async fn check_tables(connection: &PgConnection, settings: &PgSettings) -> Result<Vec<Finding>> {
    let names = &settings.names;
    let (schema, table) = (&names.schema, &names.table);
    let meta = MetaTable::read(&connection.client, names).await?;
    if let Err(error) = meta.check_version(names) {
        return Ok(vec![bad(&error)]);
    }
    let mut findings = vec![Finding::good(format!("{schema}.{table} is up to date"))];
    findings.push(match meta.check_secret(settings.secret.as_ref()) {
        Ok(()) if meta.secret.is_none() => {
            Finding::good("no process has settled the hash secret yet")
        }
        Ok(()) => Finding::good("the hash secret is the one the table was first used with"),
        Err(error) => bad(&error),
    });
    findings.push(check_rights(connection, names).await?);
    Ok(findings)
}

async fn check_rights(connection: &PgConnection, names: &PgNames) -> Result<Finding> {
    let query = "SELECT has_table_privilege($1::text, r), quote_ident(current_user) FROM unnest($2::text[]) AS r
               UNION ALL
               SELECT has_table_privilege($3::text, r), quote_ident(current_user) FROM unnest($4::text[]) AS r";
    let (all, some) =
        (vec!["SELECT", "INSERT", "UPDATE", "DELETE"], vec!["SELECT", "INSERT", "UPDATE"]);
    let rows =
        connection.client.query(query, &[&names.records(), &all, &names.meta(), &some]).await;
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

/// An error text holds the problem and its fix, separated by a semicolon.
fn with_fix(why: &str, finding: impl FnOnce(String, String) -> Finding) -> Finding {
    let (what, fix) = why.rsplit_once("; ").unwrap_or((why, "see docs/stores/postgres.md"));
    finding(what.to_owned(), fix.to_owned())
}

fn bad(error: &Error) -> Finding {
    with_fix(&error.to_string(), Finding::bad)
}
