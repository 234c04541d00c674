//! `windlass store`: checking, backing up and restoring a database.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use windlass_store::Report;

use super::data_dir;
use crate::cli::StoreCommand;

/// Does it and says what is there now.
pub fn run(command: StoreCommand) -> Result<()> {
    match command {
        StoreCommand::Check { file: Some(file), .. } => {
            say("sound", &windlass_store::check_file(&file)?)
        }
        StoreCommand::Check { data, file: None } => {
            let store = data_dir::layout(&data)?.store();
            say("sound", &windlass_store::check(&store)?)
        }
        StoreCommand::Backup { data, file } => {
            let store = data_dir::layout(&data)?.store();
            say("backed up", &windlass_store::backup(&store, &file)?)
        }
        StoreCommand::Restore { data, file } => {
            let layout = data_dir::layout(&data)?;
            let report = windlass_store::restore(&file, &layout.store())?;
            warn_if_without_keys(layout.root());
            say("restored", &report)
        }
    }
}

fn say(what: &str, report: &Report) -> Result<()> {
    let text = describe(what, report);
    io::stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn describe(what: &str, report: &Report) -> String {
    let Report { path, store, format, revision, floor, keys, records, bytes } = report;
    format!(
        "{what}: {}\n  store {store}, format {format}\n  {keys} objects at revision {revision}, \
         history since revision {floor}\n  {records} records, {bytes} bytes\n",
        path.display()
    )
}

/// Who restores on a new machine may have forgotten the other half.
fn warn_if_without_keys(root: &Path) {
    if !root.join("pki").exists() {
        let directory = root.join("pki");
        let directory = directory.display();
        tracing::warn!(
            %directory,
            "no certificates and keys here: put the old ones there before the first start, or new \
             ones are made and old credentials stop working"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use windlass_store::{Embedded, Options};

    use super::*;
    use crate::cli::DataDirArgs;

    #[test]
    fn a_backup_becomes_a_database_again() {
        let directory = tempfile::tempdir().unwrap();
        let root = |name: &str| directory.path().join(name);
        let data = |root: &PathBuf| DataDirArgs { data_dir: Some(root.clone()) };
        let (old, new, file) = (root("old"), root("new"), root("backup.db"));
        drop(Embedded::open(Options::new(old.join("store"))).unwrap());

        run(StoreCommand::Check { data: data(&old), file: None }).unwrap();
        run(StoreCommand::Backup { data: data(&old), file: file.clone() }).unwrap();
        let check =
            StoreCommand::Check { data: DataDirArgs { data_dir: None }, file: Some(file.clone()) };
        run(check).unwrap();
        run(StoreCommand::Restore { data: data(&new), file: file.clone() }).unwrap();
        drop(Embedded::open(Options::new(new.join("store"))).unwrap());

        let over = run(StoreCommand::Restore { data: data(&old), file });
        assert!(over.unwrap_err().to_string().contains("is not empty"));
        assert!(run(StoreCommand::Check { data: data(&root("none")), file: None }).is_err());
    }

    #[test]
    fn says_what_is_there() {
        let report = Report {
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
