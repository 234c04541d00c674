//! `windlass token`: manages bootstrap tokens, with which machines join, on any server.

pub mod bindings;
mod join;
mod secret;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client, Config};
use serde::Serialize;
use serde_json::json;
use time::OffsetDateTime;
use windlass_api::age::human_duration;
use zeroize::Zeroizing;

use super::{api_client, print};
use crate::cli::{OutputFormat, TokenCommand, TokenCreateArgs, TokenDeleteArgs, TokenListArgs, TokenTtl};
use crate::datadir;

use bindings::{BindingChange, BootstrapBinding};
use secret::{BootstrapToken, NAMESPACE, TYPE, TokenAttributes, TokenEntry};

/// Maximum number of ids to try if one is taken; there are two billion.
const ATTEMPTS: usize = 5;

/// Runs a subcommand of `windlass token`.
pub fn run(command: TokenCommand) -> Result<()> {
    api_client::block_on(async {
        match command {
            TokenCommand::Create(arguments) => create(*arguments).await,
            TokenCommand::List(arguments) => list(arguments).await,
            TokenCommand::Delete(arguments) => delete(arguments).await,
        }
    })
}

async fn create(arguments: TokenCreateArgs) -> Result<()> {
    let config = api_client::config(&arguments.server).await?;
    let client = api_client::from_config(config.clone())?;
    if let Some(file) = &arguments.write_bootstrap_kubeconfig
        && file.try_exists().is_ok_and(|exists| exists)
    {
        bail!("{} already exists; choose another --write-bootstrap-kubeconfig", file.display());
    }
    let now = OffsetDateTime::now_utc();
    let terms = TokenAttributes::new(arguments.ttl, &arguments.groups, &arguments.description, now)?;
    // Create the bindings before the token: a failure here leaves no usable credential behind.
    let bindings = match arguments.no_bindings {
        true => Vec::new(),
        false => bind(&client, &terms.groups).await?,
    };
    let tokens = Api::namespaced(client, NAMESPACE);
    let token = store(&tokens, &terms).await?;
    let url = arguments.url.clone().unwrap_or_else(|| server_url(&config));
    let command = match prepare_join_command(&arguments, &config, &url, &token) {
        Ok(command) => command,
        Err(error) => {
            // The token was not shown to anybody, so it is of no use.
            remove(&tokens, &token.id).await?;
            return Err(error);
        }
    };
    warn(&arguments, &config, &url);
    let made = CreatedToken {
        id: &token.id,
        token: &token.whole(),
        terms,
        server: url,
        bindings,
        bootstrap_kubeconfig: arguments.write_bootstrap_kubeconfig,
        command: &command,
    };
    print::show(&made, arguments.output.format, |format| made.text(format))
}

fn server_url(config: &Config) -> String {
    config.cluster_url.to_string().trim_end_matches('/').to_owned()
}

async fn bind(client: &Client, groups: &[String]) -> Result<Vec<BindingResult>> {
    let mut bound = Vec::new();
    for binding in BootstrapBinding::for_groups(groups) {
        let done = binding.ensure(client).await;
        let done = done.context("cannot bind roles; to skip this, use --no-bindings")?;
        if let Some(line) = binding.line(done) {
            eprintln!("windlass: {line}");
        }
        bound.push(BindingResult { binding, done });
    }
    Ok(bound)
}

/// Creates a token and stores its Secret on the server.
async fn store(tokens: &Api<Secret>, terms: &TokenAttributes) -> Result<BootstrapToken> {
    for _ in 0..ATTEMPTS {
        let token = BootstrapToken::random()?;
        let (params, object) = (PostParams::default(), token.object(terms));
        match api_client::with_timeout(tokens.create(&params, &object)).await? {
            Ok(_) => return Ok(token),
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(api_client::explain(error)),
        }
    }
    bail!("no free token ID found")
}

/// Writes the token for the node; returns the command to run there.
fn prepare_join_command(
    arguments: &TokenCreateArgs,
    config: &Config,
    url: &str,
    token: &BootstrapToken,
) -> Result<Zeroizing<String>> {
    let kubeconfig = join::kubeconfig(config, url, &token.whole())?;
    let Some(file) = &arguments.write_bootstrap_kubeconfig else {
        return Ok(join::without_file(&kubeconfig));
    };
    datadir::write_new(file, kubeconfig)?;
    Ok(Zeroizing::new(join::with_file(file)))
}

/// Warns about settings that prevent the token from working as expected.
fn warn(arguments: &TokenCreateArgs, config: &Config, url: &str) {
    if join::is_local(url) {
        eprintln!(
            "windlass: warning: {url} is reachable from this machine only; set another URL with --server"
        );
    }
    if config.accept_invalid_certs {
        eprintln!(
            "windlass: warning: the kubeconfig disables TLS verification of the server, and so will nodes"
        );
    }
    if arguments.ttl == TokenTtl::Forever {
        eprintln!("windlass: warning: the token never expires; delete it when it is no longer needed");
    }
}

#[derive(Serialize)]
struct BindingResult {
    #[serde(flatten)]
    binding: BootstrapBinding,
    done: BindingChange,
}

/// The created token. The only place where a secret is printed deliberately.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreatedToken<'a> {
    id: &'a str,
    token: &'a str,
    #[serde(flatten)]
    terms: TokenAttributes,
    server: String,
    bindings: Vec<BindingResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap_kubeconfig: Option<PathBuf>,
    command: &'a str,
}

impl CreatedToken<'_> {
    fn text(&self, format: Option<OutputFormat>) -> String {
        if format == Some(OutputFormat::Name) {
            return object(self.id) + "\n";
        }
        let expiry = match &self.terms.expires {
            Some(time) => format!("expires {time}"),
            None => "never expires".to_owned(),
        };
        let run = match &self.bootstrap_kubeconfig {
            Some(file) => format!("copy {} to it and run on it", file.display()),
            None => "run on it".to_owned(),
        };
        let (token, command) = (self.token, self.command);
        format!("token {token} {expiry}\n\nTo join a machine as a node, {run}:\n\n{command}\n")
    }
}

async fn list(arguments: TokenListArgs) -> Result<()> {
    let client = api_client::connect(&arguments.server).await?;
    let tokens: Api<Secret> = Api::namespaced(client, NAMESPACE);
    let wanted = ListParams::default().fields(&format!("type={TYPE}"));
    let found = api_client::with_timeout(tokens.list(&wanted)).await?.map_err(api_client::explain)?;
    let now = OffsetDateTime::now_utc();
    let entry = |secret: &Secret| TokenEntry::from_secret(secret, arguments.show_secrets, now);
    let entries = found.items.iter().filter_map(entry).collect::<Vec<_>>();
    if entries.is_empty() && matches!(arguments.output.format, None | Some(OutputFormat::Wide)) {
        eprintln!("windlass: no tokens found");
        return Ok(());
    }
    let items = json!({ "items": entries });
    print::show(&items, arguments.output.format, |format| lines(&entries, format))
}

/// Formats tokens as a table; `OutputFormat::Name` prints Secret names only.
fn lines(entries: &[TokenEntry], format: Option<OutputFormat>) -> String {
    if format == Some(OutputFormat::Name) {
        return entries.iter().map(|entry| object(&entry.id) + "\n").collect();
    }
    let wide = format == Some(OutputFormat::Wide);
    let secrets = entries.iter().any(|entry| entry.token.is_some());
    let first = if secrets { "TOKEN" } else { "ID" };
    let mut head = vec![first, "TTL", "USAGES", "GROUPS", "DESCRIPTION"];
    if wide {
        head.extend(["EXPIRES", "PROBLEM"]);
    }
    let none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    rows.extend(entries.iter().map(|entry| {
        let terms = &entry.terms;
        let mut row = vec![
            print::word(entry.token.as_ref().unwrap_or(&entry.id)),
            remaining_ttl(entry),
            none(terms.usages.join(",")),
            none(print::words(&terms.groups)),
            none(print::plain(&terms.description)),
        ];
        if wide {
            row.push(terms.expires.as_deref().map_or("<never>".into(), print::word));
            row.push(entry.problem.unwrap_or("<none>").to_owned());
        }
        row
    }));
    print::table(&rows)
}

fn remaining_ttl(entry: &TokenEntry) -> String {
    match entry.seconds_left {
        None => "<forever>".to_owned(),
        Some(seconds) if seconds > 0 => human_duration(seconds),
        Some(_) => "<expired>".to_owned(),
    }
}

async fn delete(arguments: TokenDeleteArgs) -> Result<()> {
    let client = api_client::connect(&arguments.server).await?;
    let tokens = Api::namespaced(client, NAMESPACE);
    let mut failed = 0;
    let mut deleted = Vec::new();
    let format = arguments.output.format;
    for id in &arguments.ids {
        match remove(&tokens, id).await {
            Ok(()) => {
                deleted.push(json!({ "id": id, "deleted": true }));
                match format {
                    None => print::write_stdout(&format!("{} deleted\n", object(id)))?,
                    Some(OutputFormat::Name) => print::write_stdout(&format!("{}\n", object(id)))?,
                    Some(_) => {}
                }
            }
            Err(error) if arguments.ids.len() == 1 => return Err(error),
            Err(error) => {
                eprintln!("windlass: {error:#}");
                failed += 1;
            }
        }
    }
    print::show(&json!({ "items": deleted }), format, |_| String::new())?;
    match failed {
        0 => Ok(()),
        _ => bail!("{failed} of {} not deleted", arguments.ids.len()),
    }
}

/// Deletes a token, but no other Secret that has its name.
async fn remove(tokens: &Api<Secret>, id: &str) -> Result<()> {
    let name = secret::name(id);
    let unknown = || anyhow::anyhow!("token {id:?} not found; list tokens with windlass token list");
    let found = api_client::with_timeout(tokens.get_opt(&name)).await?.map_err(api_client::explain)?;
    let found = found.filter(|secret| secret.type_.as_deref() == Some(TYPE)).ok_or_else(unknown)?;
    let same = Preconditions { uid: found.metadata.uid, ..Preconditions::default() };
    let params = DeleteParams::default().preconditions(same);
    match api_client::with_timeout(tokens.delete(&name, &params)).await? {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(unknown()),
        Err(error) => Err(api_client::explain(error)),
    }
}

/// Formats the name of a token's Secret as `-o name` prints it.
fn object(id: &str) -> String {
    format!("secret/{}", secret::name(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, seconds_left: Option<i64>, token: Option<&str>) -> TokenEntry {
        let terms = TokenAttributes {
            expires: seconds_left.map(|_| "2026-06-01T12:00:00Z".to_owned()),
            usages: vec!["authentication".to_owned(), "signing".to_owned()],
            groups: vec!["system:bootstrappers:a".to_owned()],
            description: String::new(),
        };
        TokenEntry { id: id.to_owned(), token: token.map(str::to_owned), terms, seconds_left, problem: None }
    }

    #[test]
    fn tokens_are_lined_up() {
        let mut odd = entry("bbbbbb", Some(-5), None);
        odd.terms.description = "web\u{1b}[2J".to_owned();
        odd.terms.groups.clear();
        let entries = [entry("aaaaaa", Some(7200), None), odd, entry("cccccc", None, None)];
        let wanted = "ID       TTL         USAGES                   GROUPS                   DESCRIPTION
aaaaaa   120m        authentication,signing   system:bootstrappers:a   <none>
bbbbbb   <expired>   authentication,signing   <none>                   web [2J
cccccc   <forever>   authentication,signing   system:bootstrappers:a   <none>
";
        assert_eq!(lines(&entries, None), wanted);
        let shown = [entry("aaaaaa", None, Some("aaaaaa.0123456789abcdef"))];
        assert!(lines(&shown, None).starts_with("TOKEN "));
        assert!(lines(&shown, Some(OutputFormat::Wide)).contains("<never>   <none>\n"));
        assert_eq!(lines(&shown, Some(OutputFormat::Name)), "secret/bootstrap-token-aaaaaa\n");
    }
}
