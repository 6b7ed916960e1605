//! What `semel config check` says about the worker of a file with the section `[worker]`.

use clap::{Args, Command};

use super::{WorkerConfig, WorkerFields, WorkerFlags, update_worker};
use crate::settings::{
    BadSettings, ConfigBuilder, LoadedSettings, field_names::fields_of, origin::SettingOrigin,
    policy::PolicyFields, problem::SettingProblem, raw::GatewayFields, variables,
};

/// The worker's settings, if there are any: those of the file, and `SEMEL_*` variables. The flags are the gateway's.
pub(in crate::settings) fn worker_beside(
    loaded: &LoadedSettings,
) -> Option<Result<WorkerConfig, BadSettings>> {
    let (mut settings, mut origins) = (loaded.read.settings.clone(), loaded.read.origins.clone());
    if loaded.context.demo || !origins.iter().any(|(name, _)| name.starts_with("worker.")) {
        return None;
    }
    let command = WorkerFields::augment_args(Command::new("semel")).no_binary_name(true);
    let matches = match command.clone().try_get_matches_from([""; 0]) {
        Ok(matches) => matches,
        Err(error) => {
            let text = error.to_string();
            let what = text.trim_start_matches("error: ").lines().next().unwrap_or_default();
            let problem = SettingProblem::new(SettingOrigin::Default, what);
            return Some(Err(BadSettings(vec![problem])));
        }
    };
    let updated = update_worker(&mut settings.worker, &matches);
    updated.expect("clap has checked every argument");
    origins.overlay(&command, &matches);
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut context = loaded.context.clone();
    context.warnings = variables::unknown(&WorkerFlags::command(), names);
    let problems = loaded.read.problems.clone();
    Some(ConfigBuilder::new(&settings, &origins, problems, context).build_worker())
}

/// True if anything is set that only a gateway has.
pub(in crate::settings) fn has_gateway(loaded: &LoadedSettings) -> bool {
    const SECTIONS: [&str; 5] = ["upstreams.", "routes.", "timeouts.", "client.", "jwt."];
    let is_own = |name: &str| {
        // The worker has a time to drain, too.
        name != "shutdown_grace" && fields_of::<GatewayFields>().contains(&name)
    };
    loaded.read.origins.iter().any(|(name, origin)| {
        // A variable such as SEMEL_LEASE may be the worker's.
        let is_policy = fields_of::<PolicyFields>().contains(&name)
            && !matches!(origin, SettingOrigin::Variable(_));
        is_own(name) || is_policy || SECTIONS.iter().any(|section| name.starts_with(section))
    })
}
