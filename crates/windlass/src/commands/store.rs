//! `windlass store`: checks, backs up, restores and migrates a database.

mod progress;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use windlass_store::{MigrationSummary, RaisedRevision, StoreLocation, StoreReport};

use super::{data_dir, print};
use crate::cli::{DocumentArgs, EtcdArgs, StoreCommand, StoreLocationArgs};
use progress::MigrationProgress;

/// Runs the subcommand and prints the resulting state.
pub fn run(command: StoreCommand) -> Result<()> {
    match command {
        StoreCommand::Check { file: Some(file), output, .. } => {
            print_report("ok", &windlass_store::check_file(&file)?, &output)
        }
        StoreCommand::Check { data, file: None, output } => {
            let store = data_dir::layout(&data)?.store();
            print_report("ok", &windlass_store::check(&store)?, &output)
        }
        StoreCommand::Backup { data, file, output } => {
            let store = data_dir::layout(&data)?.store();
            print_report("backed up", &windlass_store::backup(&store, &file)?, &output)
        }
        StoreCommand::Restore { data, file, output } => {
            let layout = data_dir::layout(&data)?;
            let report = windlass_store::restore(&file, &layout.store())?;
            warn_if_without_keys(layout.root());
            print_report("restored", &report, &output)
        }
        StoreCommand::Export { place, file, quiet, output } => {
            let (place, _) = resolve_location(place)?;
            let mut progress = MigrationProgress::new(quiet);
            let moved = windlass_store::export(&place, &file, &mut |news| progress.update(news));
            progress.end();
            show_moved("exported", &file.display().to_string(), &moved?, &output)
        }
        StoreCommand::Import { place, file: Some(file), quiet, output, .. } => {
            let (place, root) = resolve_location(place)?;
            let mut progress = MigrationProgress::new(quiet);
            let moved = windlass_store::import(&place, &file, &mut |news| progress.update(news));
            progress.end();
            let moved = moved?;
            if let Some(root) = root {
                warn_if_without_keys(&root);
            }
            show_moved("imported", &describe_place(&place), &moved, &output)
        }
        StoreCommand::Import { place, file: None, output, .. } => {
            let (place, _) = resolve_location(place)?;
            windlass_store::undo_import(&place)?;
            let place = describe_place(&place);
            let document = json!({ "result": "import undone", "store": place });
            print::show(&document, output.format, |_| format!("import undone: {place}\n"))
        }
        StoreCommand::RaiseRevision { etcd, by, output } => raise_store_revision(etcd, by, &output),
    }
}

/// Returns the store that the flags select, and its data directory, if it is in one.
fn resolve_location(place: StoreLocationArgs) -> Result<(StoreLocation, Option<PathBuf>)> {
    match place.etcd.options() {
        Some(options) => Ok((StoreLocation::Etcd(options), None)),
        None => {
            let layout = data_dir::layout(&place.data)?;
            Ok((StoreLocation::Directory(layout.store()), Some(layout.root().to_owned())))
        }
    }
}

fn describe_place(place: &StoreLocation) -> String {
    match place {
        StoreLocation::Directory(directory) => directory.display().to_string(),
        StoreLocation::Etcd(options) => {
            format!("{} with prefix {}", options.endpoints.join(","), options.prefix)
        }
    }
}

fn show_moved(what: &str, place: &str, moved: &MigrationSummary, output: &DocumentArgs) -> Result<()> {
    let MigrationSummary { objects, digest, revision, earlier } = moved;
    let document = json!({
        "result": what,
        "place": place,
        "objects": objects,
        "fromEarlierRun": earlier,
        "revision": revision,
        "digest": digest.to_string(),
    });
    print::show(&document, output.format, |_| migration_summary(what, place, moved))
}

fn migration_summary(what: &str, where_to: &str, moved: &MigrationSummary) -> String {
    let MigrationSummary { objects, digest, revision, earlier } = moved;
    let earlier = match earlier {
        0 => String::new(),
        earlier => format!(", {earlier} of them from an earlier run"),
    };
    format!("{what}: {where_to}\n  {objects} objects at revision {revision}{earlier}\n  digest {digest}\n")
}

fn raise_store_revision(etcd: EtcdArgs, by: u64, output: &DocumentArgs) -> Result<()> {
    let options = etcd.options().context("--etcd-servers is required")?;
    let place = describe_place(&StoreLocation::Etcd(options.clone()));
    let RaisedRevision { from, to } = windlass_store::raise_revision(options, by)?;
    let document = json!({ "result": "revision raised", "place": place, "from": from, "to": to });
    print::show(&document, output.format, |_| {
        format!(
            "revision raised: {place}\n  from {from} to {to}\n  servers that use the store stop; \
             restart them\n"
        )
    })
}

fn print_report(what: &str, report: &StoreReport, output: &DocumentArgs) -> Result<()> {
    let StoreReport { path, store, format, revision, floor, keys, records, bytes } = report;
    let document = json!({
        "result": what,
        "path": path,
        "store": store,
        "format": format,
        "objects": keys,
        "revision": revision,
        "historySince": floor,
        "records": records,
        "bytes": bytes,
    });
    print::show(&document, output.format, |_| describe(what, report))
}

fn describe(what: &str, report: &StoreReport) -> String {
    let StoreReport { path, store, format, revision, floor, keys, records, bytes } = report;
    format!(
        "{what}: {}\n  store {store}, format {format}\n  {keys} objects at revision {revision}, \
         history since revision {floor}\n  {records} records, {bytes} bytes\n",
        path.display()
    )
}

/// A restore on a new machine may lack the certificates and keys, which are not part of the
/// database.
fn warn_if_without_keys(root: &Path) {
    if !root.join("pki").exists() {
        let directory = root.join("pki");
        let directory = directory.display();
        tracing::warn!(
            %directory,
            "no certificates and keys found; restore them before the first start, otherwise new ones are created \
             and existing credentials stop working"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use windlass_store::{EmbeddedOptions, EmbeddedStore};

    use super::*;
    use crate::cli::DataDirArgs;

    #[test]
    fn a_backup_becomes_a_database_again() {
        let directory = tempfile::tempdir().unwrap();
        let root = |name: &str| directory.path().join(name);
        let data = |root: &PathBuf| DataDirArgs { data_dir: Some(root.clone()) };
        let (old, new, file) = (root("old"), root("new"), root("backup.db"));
        drop(EmbeddedStore::open(EmbeddedOptions::new(old.join("store"))).unwrap());

        let output = DocumentArgs::default;
        run(StoreCommand::Check { data: data(&old), file: None, output: output() }).unwrap();
        run(StoreCommand::Backup { data: data(&old), file: file.clone(), output: output() }).unwrap();
        let data_dir = DataDirArgs { data_dir: None };
        let backup = Some(file.clone());
        run(StoreCommand::Check { data: data_dir, file: backup, output: output() }).unwrap();
        run(StoreCommand::Restore { data: data(&new), file: file.clone(), output: output() }).unwrap();
        drop(EmbeddedStore::open(EmbeddedOptions::new(new.join("store"))).unwrap());

        let over = run(StoreCommand::Restore { data: data(&old), file, output: output() });
        assert!(over.unwrap_err().to_string().contains("is not empty"));
        let none = data(&root("none"));
        assert!(run(StoreCommand::Check { data: none, file: None, output: output() }).is_err());
    }

    #[test]
    fn the_report_lists_the_store_contents() {
        let report = StoreReport {
            path: "/data/store/windlass.db".into(),
            store: "abc".into(),
            format: 1,
            revision: 12,
            floor: 3,
            keys: 4,
            records: 5,
            bytes: 678,
        };
        let expected = "sound: /data/store/windlass.db\n  store abc, format 1\n  4 objects at \
                        revision 12, history since revision 3\n  5 records, 678 bytes\n";
        assert_eq!(describe("sound", &report), expected);
    }
}
